# SPDX-License-Identifier: Apache-2.0
"""Problems of an application that are found before it runs: errors, and warnings, with which it can run."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from statefun.module.binding import not_run
from statefun.module.location import Location
from statefun.module.model import Module
from statefun.sdk.errors import Problem
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.types import default_types


@attrs.frozen
class Finding:
    """A problem of an application: an error, or a warning about a possible error."""

    problem: Problem
    is_error: bool = True
    """True if the application cannot run; False for a warning: it may not behave as intended."""

    @classmethod
    def at(cls, location: Location | None, text: str, *, is_error: bool = True) -> Finding:
        """Return a finding about a location in a file, or if that is None, about the whole application."""
        where = location or Location("", 0, 0)
        return cls(Problem(where.file, where.line, where.column, "", text), is_error)

    @property
    def severity(self) -> str:
        """The severity as text: ``error`` or ``warning``."""
        return "error" if self.is_error else "warning"

    def __str__(self) -> str:
        text = str(self.problem) if self.problem.file else self.problem.text
        return f"{self.severity}: {text}"


def warnings_of(module: Module) -> Iterator[Finding]:
    """Yield a warning for each component of the module that is valid, but has no effect."""
    for component in module.unsupported:
        yield Finding.at(component.location, not_run(component), is_error=False)


def warnings_of_use(
    module: Module, functions: StatefulFunctions, sources: str
) -> Iterator[Finding]:
    """Yield a warning for each type and egress that module files declare, but that the program seems not to know.

    Args:
        module: the content of the module files.
        functions: the functions of the program.
        sources: the source code of the program.
    """
    remote = [function for function in functions if function.transport is not None]
    for ingress in module.routed:
        for route in ingress.topics:
            targets = [functions.find(str(target)) for target in route.targets]
            if any(function and function.is_typed for function in targets):
                continue  # binding_problems has checked the types that they take
            if all(function in remote for function in targets):
                continue  # functions behind endpoints have their own types
            if default_types.find(str(route.value_type)) is None:
                yield Finding.at(
                    route.location,
                    f"topic {route.topic}: no type named {route.value_type} is registered; "
                    "functions can read such values by raw_value() or as_type() only",
                    is_error=False,
                )
    for egress in module.all_egresses:
        is_mentioned = module.endpoints or str(egress.id) in sources
        if not is_mentioned and egress is not module.dead_letters:
            yield Finding.at(
                egress.location,
                f"{egress.label} is mentioned nowhere in the program",
                is_error=False,
            )
