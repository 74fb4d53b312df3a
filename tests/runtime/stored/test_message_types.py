# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.engine.buckets import RELEASED
from statefun.engine.failures import RETRY
from statefun.protocol.runtime_pb2 import DelayedMessage, Retry
from statefun.runtime.stored.message_types import type_of_waiting, value_type

WAITING = Retry(attempts=1, typename="t/value", value=b"").SerializeToString()
TOMBSTONE = Retry(attempts=1, typename="t/value").SerializeToString()


@pytest.mark.parametrize(
    ("typename", "value", "expected"),
    [
        ("t/value", b"", "t/value"),
        ("t/value", None, ""),
        (RETRY, WAITING, "t/value"),
        (RETRY, TOMBSTONE, ""),
    ],
)
def test_the_type_is_that_of_the_innermost_message(
    typename: str, value: bytes | None, expected: str
) -> None:
    """Also in a message that its bucket has released; a message without a value has none."""
    assert value_type(typename, value) == expected
    if value is not None:
        released = DelayedMessage(due=1, typename=typename, value=value).SerializeToString()
        assert value_type(RELEASED, released) == expected


def test_waiting_messages_have_the_types_of_their_values() -> None:
    """A tombstone has none."""
    assert [type_of_waiting(each) for each in (WAITING, TOMBSTONE)] == ["t/value", ""]
