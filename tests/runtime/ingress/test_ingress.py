# SPDX-License-Identifier: Apache-2.0
"""The options of an ingress in module files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from harness import KafkaHarness, run

from statefun import (
    CheckpointError,
    Context,
    KafkaEgressMessage,
    KafkaError,
    Message,
    StatefulFunctions,
    TopicError,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def forwarding(topic: str) -> StatefulFunctions:
    """Return a function that publishes its messages."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/forward")
    def forward(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=topic, value=message.raw_value()))

    return functions


def test_offsets_are_not_committed_to_the_group_if_switched_off(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The checkpoint has the offsets all the same."""
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
def test_deleted_records_are_an_error_or_left_out(
    kafka: KafkaHarness, checkpoint: Path, on_data_loss: str
) -> None:
    """Retention has deleted records that were not read yet."""
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
            f"ingress test/in: records of topic {users}, partition 0, were deleted before they "
            "were read: the next offset to read is 1, and the first record in the cluster has offset 3"
        )
        assert [record.value for record in kafka.receive(out)] == ["a"]
    else:
        run(module, forwarding(out), checkpoint)
        assert [record.value for record in kafka.receive(out)] == ["a", "d"]


@pytest.mark.parametrize("on_data_loss", ["fail", "go-on"])
def test_a_deleted_topic_is_an_error_or_left_out(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture, on_data_loss: str
) -> None:
    """If the topic is created again, it is read from its beginning."""
    kept, gone, out = kafka.topic("kept"), kafka.topic("gone"), kafka.topic("out")
    module = kafka.module({kept: ["test.fns/forward"], gone: ["test.fns/forward"]}).replace(
        "startupPosition", f"onDataLoss: {on_data_loss}\n  startupPosition"
    )
    for topic in (kept, gone):
        kafka.send(topic, [("Ada", "a"), ("Ada", "b")])
    run(module, forwarding(out), checkpoint)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_topics([gone])[gone].result(30)
    while gone in admin.list_topics().topics:
        time.sleep(0.1)
    kafka.send(kept, [("Ada", "c")])

    if on_data_loss == "fail":
        with pytest.raises(TopicError, match=f"ingress test/in: topic {gone} does not exist"):
            run(module, forwarding(out), checkpoint)
        return
    run(module, forwarding(out), checkpoint)
    assert f"ingress test/in: topic {gone} does not exist; if it is created later" in caplog.text
    assert sorted(record.value for record in kafka.receive(out)) == ["a", "a", "b", "b", "c"]
    kafka.topic("gone")
    kafka.send(gone, [("Ada", "d")])
    run(module, forwarding(out), checkpoint)
    assert [record.value for record in kafka.receive(out)][-1] == "d"


def test_a_topic_that_is_no_longer_named_is_an_error_or_left_out(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The error has the offsets of its unread records; with onDataLoss: go-on they are left out."""
    kept, removed, out = kafka.topic("kept"), kafka.topic("removed"), kafka.topic("out")
    both = kafka.module({kept: ["test.fns/forward"], removed: ["test.fns/forward"]})
    one = kafka.module({kept: ["test.fns/forward"]})
    for topic in (kept, removed):
        kafka.send(topic, [("Ada", "a")])
    run(both, forwarding(out), checkpoint)
    kafka.send(kept, [("Ada", "b")])

    with pytest.raises(CheckpointError, match=rf"would be lost \({removed}/0 from 1\)"):
        run(one, forwarding(out), checkpoint)
    for module in (one.replace("startupPosition", "onDataLoss: go-on\n  startupPosition"), one):
        run(module, forwarding(out), checkpoint)

    assert sorted(record.value for record in kafka.receive(out)) == ["a", "a", "b"]


def test_new_partitions_are_read_from_their_beginning(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """This holds although the ingress itself starts at the latest records."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/forward"]}, start="{type: latest}")
    kafka.send(users, [("Ada", "old")])
    run(module, forwarding(out), checkpoint)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_partitions([NewPartitions(users, 2)])[users].result(30)
    while len(admin.list_topics(users).topics[users].partitions) < 2:
        time.sleep(0.1)
    kafka.send(users, [("Ada", "new")], partition=1)
    run(module, forwarding(out), checkpoint)
    assert [record.value for record in kafka.receive(out)] == ["new"]


@pytest.mark.parametrize("level", ["", "read_uncommitted"])
def test_records_of_aborted_transactions_are_no_messages(
    kafka: KafkaHarness, checkpoint: Path, level: str
) -> None:
    """They are messages only if the ingress reads uncommitted records."""
    users, out = kafka.topic("users"), kafka.topic("out")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": users})
    producer.init_transactions(30)
    for value, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(users, value, "Ada")
        producer.flush(30)
        end(30)
    module = kafka.module({users: ["test.fns/forward"]})
    if level:
        module = module.replace(
            "startupPosition", f"properties: {{isolation.level: {level}}}\n  startupPosition"
        )
    run(module, forwarding(out), checkpoint)
    expected = ["a", "b"] if level else ["a"]
    assert [record.value for record in kafka.receive(out)] == expected
