# SPDX-License-Identifier: Apache-2.0
"""Calls everything twice, and finds what differs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from statefun.sdk.address import Address
from statefun.sdk.context import DelayedMessage
from statefun.sdk.invocation import InvocationResult
from statefun.sdk.message import Message
from statefun.testing.outcomes import content


class NotDeterministicError(AssertionError):
    """A function did something else when it was called again with the same messages and state.

    The runtime allows that: after a crash, what the surviving state says is what is published. But
    then a result depends on more than messages and state, such as the clock or a global variable.
    """


def check_same(target: Address, first: InvocationResult, second: InvocationResult) -> None:
    """Compare the effects of two calls.

    Raises:
        NotDeterministicError: naming function, address and value, if they differ.
    """
    for what, one, other in _pairs(first, second):
        if one != other:
            raise NotDeterministicError(
                f"function {target.typename} at address {target} is not deterministic: called twice "
                f"with the same messages and state, {what} was {one!r}, and then {other!r}"
            )


def _pairs(first: InvocationResult, second: InvocationResult) -> Iterator[tuple[str, Any, Any]]:
    names = sorted({*first.state_mutations, *second.state_mutations})
    for name in names:
        one, other = (
            _shown(each.state_mutations[name]) if name in each.state_mutations else "not changed"
            for each in (first, second)
        )
        yield f"value {name!r}", one, other
    kinds = (
        ("message", first.messages, second.messages),
        ("delayed message or cancellation", first.delayed, second.delayed),
        ("record to an egress", first.egress_messages, second.egress_messages),
        ("failure", first.failures, second.failures),
    )
    for kind, ones, others in kinds:
        for number, (one, other) in enumerate(zip_longest(ones, others), 1):
            yield f"{kind} {number}", _comparable(one), _comparable(other)


def _shown(value: Any) -> Any:
    return None if value is None else (content(value), value.value)


def _comparable(effect: Any) -> Any:
    """Return what two effects have in common if they are the same."""
    if isinstance(effect, Message):
        return effect.target_typename, effect.target_id, content(effect.typed_value)
    if isinstance(effect, DelayedMessage):
        return effect.delay, _comparable(effect.message), effect.cancellation_token
    if hasattr(effect, "typed_value"):
        return effect.typename, effect.typed_value
    if hasattr(effect, "cause"):
        return effect.index, effect.cause, effect.error.message
    return effect
