# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from statefun.engine.sinks import Sink, egress_record
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import TypedValue

MESSAGE = EgressMessage("a/b", TypedValue("a/T", b"1"))


def sent(made: Any) -> KafkaEgressMessage | None:
    """Send a message to an egress whose kind makes something of it."""
    return egress_record(MESSAGE, {"a/b": Sink(lambda _: made, 100)}, 0)


@pytest.mark.parametrize("made", [b"1", True, False, MESSAGE])
def test_what_a_kind_makes_of_a_message_is_checked(made: object) -> None:
    """It is the failure of the function that sends it; nothing else is sent in its place."""
    with pytest.raises(DefinitionError, match=r"the kind of egress a/b makes .*; it makes a Kafka"):
        sent(made)


def test_a_record_or_nothing_is_sent() -> None:
    """As the kind says."""
    record = KafkaEgressMessage("a/b", topic="out", value=b"1")

    assert sent(record) is record
    assert sent(None) is None
