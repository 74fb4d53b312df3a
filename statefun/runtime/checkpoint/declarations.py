# SPDX-License-Identifier: Apache-2.0
"""How the functions of a checkpoint have declared their values, and since which micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.value_spec import ValueSpec


@attrs.frozen
class Declaration:
    """How a function declares a value, beginning with the first micro-batch of a run."""

    since: int
    """The number of that micro-batch."""
    typename: str = ""
    """The typename of the value; empty if the function no longer declares the value."""
    form: str = ""
    """A text that differs between versions of the type; empty if the type has no such text."""
    older: tuple[str, ...] = ()
    """The typenames of the older types that are converted to the type, sorted."""
    renamed_from: tuple[str, ...] = ()
    """The former names of the value."""
    expires: str = ""
    """After which time the value expires, as text; empty if it does not."""
    secret: bool = False
    """Whether the value must not be shown."""

    @classmethod
    def of(cls, spec: ValueSpec, since: int) -> Declaration:
        """Return the declaration of the value that a spec describes."""
        type_ = spec.type
        expiration = spec.expiration
        expires = ""
        if expiration is not None:
            expires = (
                f"{expiration.after} after the last {'call' if expiration.on_call else 'write'}"
            )
        older = tuple(sorted({*type_.readers()} - {type_.typename}))
        return cls(
            since,
            type_.typename,
            type_.shape(),
            older,
            spec.renamed_from,
            expires,
            type_.is_secret,
        )

    def reads_as(self, other: Declaration) -> bool:
        """Return whether this declaration and another one read the same stored values in the same way."""
        same: dict[str, Any] = {"since": 0, "expires": "", "secret": False}
        return attrs.evolve(self, **same) == attrs.evolve(other, **same)


Declarations = Mapping[str, Mapping[str, Sequence[Declaration]]]
"""The declarations of each value, the oldest first, by stored typename of the function and name of the value."""


def newest_declaration(declarations: Iterable[Declaration]) -> Declaration | None:
    """Return the newest declaration that has a type; None if there is none."""
    return next((each for each in reversed([*declarations]) if each.typename), None)


def with_present(
    declarations: Declarations, functions: StatefulFunctions, since: int
) -> Declarations:
    """Return ``declarations``, with each present declaration added that differs from the newest one of its value.

    Functions behind endpoints declare their values only when they are called, and are left out.

    Args:
        declarations: the declarations until now.
        functions: the functions of a run that begins.
        since: the number of the run's first micro-batch.
    """
    result = {typename: dict(values) for typename, values in declarations.items()}
    for function in functions:
        if function.transport is not None:
            continue
        values = result.get(function.stored_name, {})
        present = {name: Declaration.of(spec, since) for name, spec in function.specs.items()}
        for name in {**values, **present}:
            earlier = values.get(name, ())
            declaration = present.get(name, Declaration(since))
            if not earlier or attrs.evolve(earlier[-1], since=since) != declaration:
                values[name] = [*earlier, declaration]
        if values:
            result[function.stored_name] = values
    return result


def declarations_json(declarations: Declarations) -> dict[str, Any]:
    """Return declarations in the form in which a checkpoint stores them, without the parts that are empty."""
    return {
        typename: {
            name: [attrs.asdict(each, filter=_is_written) for each in own]
            for name, own in values.items()
        }
        for typename, values in declarations.items()
    }


def _is_written(field: attrs.Attribute[Any], part: Any) -> bool:
    return bool(part) or field.name == "since"


def secret_names(declarations: Mapping[str, Sequence[Declaration]]) -> frozenset[str]:
    """Return the present and former names of those values of a function that were secret when they were last declared.

    Args:
        declarations: the declarations of each value of the function, the oldest first.
    """
    found = set[str]()
    for name, own in declarations.items():
        newest = newest_declaration(own)
        if newest is not None and newest.secret:
            found.update((name, *(former for each in own for former in each.renamed_from)))
    return frozenset(found)


def declarations_of(content: Mapping[str, Any]) -> Declarations:
    """Decode declarations that :func:`declarations_json` has encoded."""
    return {
        typename: {name: [_declaration(each) for each in own] for name, own in values.items()}
        for typename, values in content.items()
    }


def _declaration(content: Mapping[str, Any]) -> Declaration:
    lists = {name: tuple(part) for name, part in content.items() if isinstance(part, list)}
    return Declaration(**{**content, **lists})
