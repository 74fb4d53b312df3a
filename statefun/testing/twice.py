# SPDX-License-Identifier: Apache-2.0
"""Compares the effects of two calls of a function with the same messages and state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from statefun.sdk.address import Address
from statefun.sdk.annotations import is_secret_type
from statefun.sdk.invocation_batch import InvocationResult
from statefun.sdk.message import Message
from statefun.sdk.secrecy import SECRET
from statefun.sdk.sent import DelayedMessage
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import TypedValue
from statefun.testing.outcomes import content


class NotDeterministicError(AssertionError):
    """Two calls of a function with the same messages and state had different effects.

    The runtime allows such functions: published records always agree with the surviving state. But the
    effects of such a function depend on more than messages and state, such as the clock.
    """


def check_same(
    function: StatefulFunction, target: Address, first: InvocationResult, second: InvocationResult
) -> None:
    """Check that two calls of a function had the same effects.

    Raises:
        NotDeterministicError: if the effects differ; the error names the function, the address and the effect.
    """
    secrets = {f"value {name!r}" for name, spec in function.specs.items() if spec.type.is_secret}
    for what, one, other in _pairs(first, second):
        if one != other:
            first_text, second_text = (
                SECRET if what in secrets else _text(each) for each in (one, other)
            )
            raise NotDeterministicError(
                f"function {target.typename} at address {target} is not deterministic: called twice "
                f"with the same messages and state, {what} was {first_text} in the first call, and "
                f"{second_text} in the second"
            )


def _pairs(first: InvocationResult, second: InvocationResult) -> Iterator[tuple[str, Any, Any]]:
    changes = first.state_mutations, second.state_mutations
    for name in sorted({*changes[0], *changes[1]}):
        before, after = (each.get(name, "not changed") for each in changes)
        yield f"value {name!r}", before, after
    kinds = (
        ("message", first.messages, second.messages),
        ("delayed message or cancellation", first.delayed, second.delayed),
        ("wake-up", first.wake_ups, second.wake_ups),
        ("record to an egress", first.egress_messages, second.egress_messages),
        ("failure", first.failures, second.failures),
    )
    for kind, ones, others in kinds:
        for number, (one, other) in enumerate(zip_longest(ones, others), 1):
            yield f"{kind} {number}", _comparable(one), _comparable(other)


def _text(effect: Any) -> str:
    """Return a text for an effect, with its values decoded."""
    if isinstance(effect, TypedValue):
        if is_secret_type(effect.typename):
            return SECRET
        return f"{content(effect)!r} ({effect.typename})"
    if isinstance(effect, tuple):
        return ", ".join(map(_text, effect))
    return "nothing" if effect is None else f"{effect!r}"


def _comparable(effect: Any) -> Any:
    """Return the parts of an effect that must not differ between two calls."""
    if isinstance(effect, Message):
        return effect.target_typename, effect.target_id, effect.typed_value
    if isinstance(effect, DelayedMessage):
        return effect.delay, effect.due, _comparable(effect.message), effect.cancellation_token
    if hasattr(effect, "typed_value"):
        return effect.typename, effect.typed_value
    if hasattr(effect, "cause"):
        return effect.index, effect.cause, effect.error.message
    return effect
