# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.protocol.request_reply_pb2 import FromFunction
from statefun.remote.exchange import RemoteValue, ReplyError, effects_of, missing_values
from statefun.sdk.encoding import MAX_VALUE_BYTES


def asked(mode: int, millis: int) -> FromFunction:
    """Return a reply that asks for a value with an expiration; a later protocol may have more modes."""
    content = bytes([0x08, mode, 0x10, millis])
    reply = FromFunction()
    value = reply.incomplete_invocation_context.missing_values.add(state_name="n")
    value.expiration_spec.MergeFromString(content)
    return reply


@pytest.mark.parametrize(
    ("mode", "millis", "problem"),
    [(7, 1, "with mode 7 of expiration, which the protocol does not have"), (1, 0, "of 0 ms")],
)
def test_expirations_that_the_protocol_does_not_have_are_refused(
    mode: int, millis: int, problem: str
) -> None:
    """The runtime would keep the value too short or too long."""
    with pytest.raises(ReplyError, match=f"value 'n' .*{problem}"):
        missing_values(asked(mode, millis))


@pytest.mark.parametrize(("mode", "on_call"), [(0, None), (1, False), (2, True)])
def test_a_value_expires_in_the_mode_that_its_function_has_declared(
    mode: int, *, on_call: bool | None
) -> None:
    """After a write, after a call, or never."""
    expiration = missing_values(asked(mode, 1))["n"].expiration

    assert (None if expiration is None else expiration.on_call) is on_call


def test_a_value_of_a_reserved_type_is_not_kept() -> None:
    """Such types are those of the engine's own messages."""
    reply = FromFunction()
    reply.incomplete_invocation_context.missing_values.add(
        state_name="n", type_typename="statefun.repairs/set"
    )

    with pytest.raises(ReplyError, match=r"value 'n': typename 'statefun\.repairs/set' is in the"):
        missing_values(reply)


def sent(typename: str, value: bytes, place: str) -> FromFunction:
    """Return a reply with a value in one of the places for values."""
    reply = FromFunction()
    effects = reply.invocation_result
    if place == "state":
        change = effects.state_mutations.add(mutation_type=1, state_name="n")
        argument = change.state_value
    elif place == "record":
        argument = effects.outgoing_egresses.add(egress_namespace="a", egress_type="b").argument
    else:
        message = getattr(effects, place).add()
        message.target.namespace, message.target.type, message.target.id = "a", "b", "c"
        argument = message.argument
    argument.typename, argument.value, argument.has_value = typename, value, True
    return reply


@pytest.mark.parametrize("place", ["state", "record", "outgoing_messages", "delayed_invocations"])
@pytest.mark.parametrize(
    ("typename", "size", "problem"),
    [
        ("statefun.timers/wake-up", 1, "is in the namespace statefun"),
        ("a/T", MAX_VALUE_BYTES + 1, "has 67,108,865 bytes"),
    ],
)
def test_a_reply_has_the_values_of_other_functions(
    place: str, typename: str, size: int, problem: str
) -> None:
    """A value that a function of the program could not send or store is refused."""
    reply = sent(typename, bytes(size), place)

    with pytest.raises(ReplyError, match=problem):
        effects_of(reply, {"n": RemoteValue(typename, None)}, None, None)
