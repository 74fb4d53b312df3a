# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from statefun.engine.sinks import Sink, egress_record
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import TypedValue

MESSAGE = EgressMessage("a/b", TypedValue("a/T", b"1"))


def record_of(result: Any) -> KafkaEgressMessage | None:
    """Send a message to an egress whose kind converts it to ``result``."""
    return egress_record(MESSAGE, {"a/b": Sink(lambda _: result, 100)}, 0)


@pytest.mark.parametrize("result", [b"1", True, False, MESSAGE])
def test_the_result_of_an_egress_kind_is_checked(result: object) -> None:
    """A wrong result is a failure of the function that sends the message; nothing is sent."""
    text = r"the kind of egress a/b has returned .* for a message; it has to return a KafkaEgressM"
    with pytest.raises(DefinitionError, match=text):
        record_of(result)


def test_a_record_or_nothing_is_sent() -> None:
    """The kind of the egress decides."""
    record = KafkaEgressMessage("a/b", topic="out", value=b"1")

    assert record_of(record) is record
    assert record_of(None) is None
