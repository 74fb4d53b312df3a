# SPDX-License-Identifier: Apache-2.0
"""How an ingress reads: what module files can switch."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from harness import KafkaHarness, run

from statefun import Context, KafkaEgressMessage, KafkaError, Message, StatefulFunctions

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def forwarding(topic: str) -> StatefulFunctions:
    """Return a function that puts out what comes in."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/forward")
    def forward(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=topic, value=message.raw_value()))

    return functions


def test_offsets_are_not_committed_if_told_so(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The checkpoint knows them all the same."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/forward"]}, group="silent").replace(
        "startupPosition", "commitOffsets: false\n  startupPosition"
    )
    for value in ("a", "b"):
        kafka.send(users, [("Ada", value)])
        run(module, forwarding(out), checkpoint)

    assert [record.value for record in kafka.receive(out)] == ["a", "b"]
    assert kafka.group_offsets("silent", users) == [-1001]


@pytest.mark.parametrize("on_data_loss", ["fail", "go-on"])
def test_records_that_are_gone_are_an_error_or_left_out(
    kafka: KafkaHarness, checkpoint: Path, on_data_loss: str
) -> None:
    """Retention has deleted what was not read yet."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/forward"]}).replace(
        "startupPosition", f"onDataLoss: {on_data_loss}\n  startupPosition"
    )
    kafka.send(users, [("Ada", "a")])
    run(module, forwarding(out), checkpoint)
    kafka.send(users, [("Ada", value) for value in "bcd"])
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.delete_records([TopicPartition(users, 0, 3)]).values():
        future.result(30)

    if on_data_loss == "fail":
        with pytest.raises(KafkaError) as raised:
            run(module, forwarding(out), checkpoint)
        assert raised.value.message.startswith(
            f"ingress test/in: records of topic {users}, partition 0, are gone that were not read "
            f"yet: the next one was that of offset 1, and the first one there is that of offset 3"
        )
        assert [record.value for record in kafka.receive(out)] == ["a"]
    else:
        run(module, forwarding(out), checkpoint)
        assert [record.value for record in kafka.receive(out)] == ["a", "d"]
