# SPDX-License-Identifier: Apache-2.0
"""Messages that become dead letters, without Spark and Kafka."""

from __future__ import annotations

import pytest

from statefun import Context, FunctionError, KafkaEgress, Message, StatefulFunctions
from statefun.testing import InProcessApplication


def test_a_message_whose_letter_would_lack_its_value_stops_the_application() -> None:
    """The message has no record in a topic, so a letter without its value would lose it."""
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def f(ctx: Context, message: Message) -> None:
        raise ValueError("no")

    egress = KafkaEgress.for_id("t/out").with_kafka_address("localhost:1")
    egress = egress.with_option("deadLetterTopic", "dead")
    egress = egress.with_properties({"max.request.size": "20000"})
    app = InProcessApplication(functions=functions, components=[egress.build()])

    app.send("t/f", "Ada", "small")
    app.drain()
    app.send("t/f", "Ada", "x" * 30_000)
    with pytest.raises(FunctionError, match="its dead letter would be larger than egress t/out"):
        app.drain()

    [letter] = app.dead_letters()
    assert str(letter.target) == "t/f/Ada"
