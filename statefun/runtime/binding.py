# SPDX-License-Identifier: Apache-2.0
"""Checking that module files and registered functions fit, before anything starts."""

from __future__ import annotations

import logging

from statefun.sdk.errors import BindingError
from statefun.sdk.functions import StatefulFunctions
from statefun.spec.model import Module

logger = logging.getLogger("statefun")


def check_binding(module: Module, functions: StatefulFunctions) -> None:
    """Check that every ingress target has a function, and that nothing asked for is missing.

    Raises:
        BindingError: with everything that does not fit.
    """
    problems = [
        f"{route.location}: target {target} of ingress {ingress.id} has no function"
        f"{functions.hint(str(target))}"
        for ingress in module.ingresses
        for route in ingress.topics
        for target in route.targets
        if functions.find(str(target)) is None
    ]
    if not len(functions):
        problems.append("no function is registered; decorate one with @function(...)")
    if not module.ingresses:
        problems.append("no ingress is declared, so that no function would ever be invoked")
    if problems:
        raise BindingError("\n  ".join(["module files and functions do not fit", *problems]))
    for component in module.unsupported:
        logger.warning(
            "%s: %s %s is understood, but not run by this version",
            component.location,
            component.kind,
            component.id,
        )
