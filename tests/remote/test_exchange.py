# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.protocol.request_reply_pb2 import FromFunction
from statefun.remote.exchange import ReplyError, missing_values


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
