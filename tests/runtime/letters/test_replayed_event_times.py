# SPDX-License-Identifier: Apache-2.0
"""Dead letters of messages with event times, replayed to windows on Spark."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, run
from patience import SECONDS

from statefun import Address, Context, KafkaEgressMessage, StatefulFunctions
from statefun.cli import main
from statefun.sdk.times import to_epoch_millis
from statefun.windows import Tumbling, Window, WindowContext, windowed

pytestmark = [pytest.mark.broker, pytest.mark.spark]

MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def functions(out: str, *, fixed: bool) -> StatefulFunctions:
    """Return a function that sends to a windowed one, which fails until it is fixed."""
    registry = StatefulFunctions()

    class Count(Window):
        """The number of messages of a window."""

        count: int = 0

    @registry.bind("t/station")
    def station(ctx: Context, text: str) -> None:
        ctx.send(Address("t/usage", "u"), text)

    @windowed("t/usage", Tumbling(MINUTE), functions=registry)
    def usage(ctx: WindowContext, text: str, count: Count) -> None:
        if text == "bad" and not fixed:
            raise ConnectionError("no answer")
        count.count += 1

    @usage.on_close
    def close(ctx: WindowContext, count: Count) -> None:
        value = f"{(ctx.window.start - START) // MINUTE}: {count.count}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=value))

    return registry


def test_a_replayed_message_of_a_function_belongs_to_its_window(
    kafka: KafkaHarness, tmp_path: Path, checkpoint: Path
) -> None:
    """The replay has the event time of the message, which has no record of its own."""
    source, out, dead, again = map(kafka.topic, ("in", "out", "dead", "again"))
    module = (
        kafka.module({source: ["t/station"]}, dead_letters=dead)
        .replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")
        .replace("  topics:", "  eventTime: {outOfOrder: 0s}\n  topics:", 1)
        .replace("deadLetterTopic", f"replayTopic: {again}\n  deadLetterTopic")
    )
    file = tmp_path / "module.yaml"
    file.write_text(module)

    producer = Producer({"bootstrap.servers": kafka.address})

    def at(seconds: int, text: str) -> None:
        time = START + timedelta(seconds=seconds)
        producer.produce(source, text, "s", timestamp=to_epoch_millis(time))
        assert producer.flush(SECONDS) == 0

    at(10, "good")
    at(20, "bad")
    run(module, functions(out, fixed=False), checkpoint)
    assert main(["dlq", "replay", "--all", "--to-target", "--module", str(file)]) == 0
    run(module, functions(out, fixed=True), checkpoint)
    at(70, "later")
    run(module, functions(out, fixed=True), checkpoint)

    assert [record.value for record in kafka.receive(out)] == ["0: 2"]
    assert len(kafka.receive(dead)) == 2  # the letter, and the note that it was replayed
