# SPDX-License-Identifier: Apache-2.0
"""Records whose timestamps are in other units than milliseconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import KafkaHarness, run
from patience import SECONDS

from statefun import Context, KafkaEgressMessage, KafkaError, Message, StatefulFunctions

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_a_record_with_a_timestamp_that_spark_cannot_read(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The error names the record, and its remedy works; microseconds are read."""
    topic, out = f"{kafka.topic('other')}.in", kafka.topic("out")
    admin = AdminClient({"bootstrap.servers": kafka.address})
    config = {"message.timestamp.after.max.ms": "9223372036854775807"}
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(topic, "a", "k", timestamp=1_764_000_000_000_000_000)
    producer.produce(topic, "b", "k", timestamp=1_764_000_000_000_000)
    producer.produce(topic, "c", "k")
    assert producer.flush(SECONDS) == 0
    functions = StatefulFunctions()

    @functions.bind("test.fns/forward")
    def forward(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.raw_value()))

    module = kafka.module({topic: ["test.fns/forward"]})
    with pytest.raises(KafkaError) as caught:
        run(module, functions, checkpoint)
    assert caught.value.message.startswith(
        f"ingress test/in: the record in topic {topic}, partition 0, at offset 0 has the timestamp "
        "1764000000000000000, which is too large for a number of milliseconds"
    )
    for future in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        future.result(SECONDS)
    run(module.replace("  startup", "  onDataLoss: go-on\n  startup"), functions, checkpoint)

    assert [record.value for record in kafka.receive(out)] == ["b", "c"]
