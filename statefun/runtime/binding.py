# SPDX-License-Identifier: Apache-2.0
"""Checking that module files and registered functions fit, before anything starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from statefun.sdk.errors import BindingError
from statefun.sdk.failure import OnFailure, Retry
from statefun.sdk.functions import StatefulFunctions
from statefun.spec.model import Module

logger = logging.getLogger("statefun")

_NO_TOPIC = (
    "failures are to become dead letters, but no egress has a deadLetterTopic; add one to an egress"
)


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
    problems += _failure_problems(module, functions)
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


def _failure_problems(module: Module, functions: StatefulFunctions) -> Iterator[str]:
    declared = [egress for egress in module.egresses if egress.dead_letter_topic]
    for second in declared[1:]:
        yield (
            f"{second.location}: egress {second.id} has a deadLetterTopic, and egress "
            f"{declared[0].id} has one already; dead letters go to one topic"
        )
    policies: dict[str, OnFailure | None] = {}
    for ingress in module.ingresses:
        for route in ingress.topics:
            policy = route.failure_policy or ingress.failure_policy
            if policies.setdefault(route.topic, policy) is not policy:
                yield (
                    f"{route.location}: topic {route.topic} of ingress {ingress.id} has another "
                    "failurePolicy than the topic of that name elsewhere; give both the same"
                )
            if policy is OnFailure.DEAD_LETTER and not declared:
                yield f"{route.location}: topic {route.topic}: {_NO_TOPIC}"
    for function in functions:
        chosen = function.on_failure
        last = chosen.then if isinstance(chosen, Retry) else chosen
        if last is OnFailure.DEAD_LETTER and not declared:
            yield f"function {function.typename}: {_NO_TOPIC}"
