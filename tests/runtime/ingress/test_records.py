# SPDX-License-Identifier: Apache-2.0
"""Headers, timestamps and partitions of records, which functions read and write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from harness import KafkaHarness, run
from patience import SECONDS

from statefun import (
    Context,
    KafkaEgressMessage,
    Message,
    OnFailure,
    Retry,
    StatefulFunctions,
    TopicError,
    message_builder,
)

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)
MILLIS = 1_767_323_045_678
PARENT = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
RETRY = Retry(attempts=2, backoff=timedelta(milliseconds=1), then=OnFailure.FAIL)
BAGGAGE = ("baggage", b"user=Ada")


def send(kafka: KafkaHarness, topic: str, *records: dict[str, object]) -> None:
    """Write records, given as the producer takes them."""
    producer = Producer({"bootstrap.servers": kafka.address})
    for record in records:
        producer.produce(topic, **record)  # type: ignore[arg-type] # what a test says
    assert producer.flush(30) == 0


@contextmanager
def records_of(
    kafka: KafkaHarness, topic: str, count: int, partitions: int = 1
) -> Iterator[list[KafkaMessage]]:
    """Read so many records of a topic, as they are."""
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "tests"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    yield consumer.consume(count, timeout=SECONDS)
    consumer.close()


@pytest.mark.parametrize("dispatch", ["arrow", "pandas"])
def test_a_function_sees_the_record_and_its_trace_goes_on(
    kafka: KafkaHarness, checkpoint: Path, dispatch: str
) -> None:
    """Also in a further attempt; all kinds of messages that the function sends carry the trace."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = StatefulFunctions()
    failed_once = checkpoint.parent / "failed-once"

    @functions.bind("test.fns/first", on_failure=RETRY)
    def first(ctx: Context, message: Message) -> None:
        record = ctx.record
        assert record is not None
        assert record == message.record
        if record.offset == 1 and not failed_once.exists():
            failed_once.touch()
            raise ValueError("once")
        text = f"{record.topic == users} {record.partition} {record.offset} {message.timestamp}"
        text += f" {record.headers}"
        ctx.send(message_builder("test.fns/last", "x", str_value=text))
        later = message_builder("test.fns/last", "x", str_value=f"later {record.offset}")
        ctx.send_after(timedelta(milliseconds=1), later, "token")

    @functions.bind("test.fns/last")
    def last(ctx: Context, message: Message) -> None:
        assert ctx.record is None
        assert message.timestamp is None
        own = [("baggage", "own")] if message.as_string() == "later 1" else []
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.as_string(), headers=own))

    headers = [("a", None), PARENT, BAGGAGE]
    send(
        kafka,
        users,
        {"key": "Ada", "value": "x", "timestamp": MILLIS},
        {"key": "Alan", "value": "x", "timestamp": MILLIS, "headers": headers},
    )
    for _ in range(3):  # a run leaves what is due later: the second attempt, and what it sends
        run(kafka.module({users: ["test.fns/first"]}), functions, checkpoint, dispatch=dispatch)

    with records_of(kafka, out, 4) as records:
        found = {bytes(r.value() or b"").decode(): r.headers() for r in records}
    assert found == {
        f"True 0 0 {TIME} ()": None,
        "later 0": None,
        f"True 0 1 {TIME} {tuple(headers)}": [PARENT, BAGGAGE],
        "later 1": [("baggage", b"own"), PARENT],
    }


@pytest.mark.parametrize("semantic", ["exactly-once", "at-least-once", "none"])
def test_records_are_written_as_they_were_sent(
    kafka: KafkaHarness, checkpoint: Path, semantic: str
) -> None:
    """Headers, partition, timestamp and tombstones are kept; without a partition, the key decides."""
    users, out = kafka.topic("users"), kafka.topic("out", partitions=3)
    functions = StatefulFunctions()

    @functions.bind("test.fns/write")
    def write(ctx: Context, message: Message) -> None:
        ctx.send(
            KafkaEgressMessage(
                "test/out",
                topic=out,
                key=ctx.address.id,
                value=None,
                headers=[("a", "1"), ("a", None)],
                partition=2,
                timestamp=message.timestamp,
            )
        )
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=""))

    kafka.send(users, [("Ada", "x")])
    send(kafka, users, {"key": "Alan", "value": "x", "timestamp": MILLIS})
    run(kafka.module({users: ["test.fns/write"]}, semantic=semantic), functions, checkpoint)

    with records_of(kafka, out, 4, partitions=3) as records:
        (tombstone,) = [r for r in records if r.key() == b"Alan" and r.value() is None]
        (empty,) = [r for r in records if r.key() == b"Alan" and r.value() == b""]
    assert tombstone.headers() == [("a", b"1"), ("a", None)]
    assert (tombstone.partition(), tombstone.timestamp()[1]) == (2, MILLIS)
    assert empty.headers() is None
    assert empty.partition() == murmur2(b"Alan") % 3


@pytest.mark.parametrize("semantic", ["none", "at-least-once", "exactly-once"])
def test_properties_of_an_egress_reach_its_records(
    kafka: KafkaHarness, checkpoint: Path, semantic: str
) -> None:
    """Partitioner and compression are those of the properties; idempotence is on by default."""
    users, out = kafka.topic("users"), kafka.topic("out", partitions=3)
    functions = StatefulFunctions()

    @functions.bind("test.fns/write")
    def write(ctx: Context, message: Message) -> None:
        value = message.raw_value() * 1000
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=value))

    kafka.send(users, [(name, "x") for name in ("Ada", "Alan", "Grace", "Edsger")])
    module = kafka.module({users: ["test.fns/write"]}, semantic=semantic)
    module += "  properties: {partitioner: consistent, compression.type: lz4}\n"
    run(module, functions, checkpoint)

    received = kafka.receive(out)
    assert len(received) == 4
    for record in received:
        assert record.partition == zlib.crc32(str(record.key).encode()) % 3
    [segment] = kafka.broker.log_file.parent.glob(f"**/{out}-{received[0].partition}/*0.log")
    content = segment.read_bytes()
    # A record batch of version 2: see "Record Batch" in Kafka's documentation.
    attributes, producer_id = struct.unpack_from(">21xh20xq", content)
    assert attributes & 7 == 3
    assert producer_id >= 0


def murmur2(key: bytes) -> int:
    """Hash a key as Kafka's own clients do: see ``Utils.murmur2`` in Kafka."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        part = int.from_bytes(key[start : start + 4], "little") * multiplier & mask
        part = (part ^ (part >> 24)) * multiplier & mask
        value = (value * multiplier & mask) ^ part
    rest = key[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * multiplier & mask
    value = (value ^ (value >> 13)) * multiplier & mask
    return (value ^ (value >> 15)) & 0x7FFFFFFF


def test_a_missing_partition_is_named(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The application stops, and keeps the record."""
    users, out = kafka.topic("users"), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/write")
    def write(ctx: Context, _message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value="", partition=7))

    kafka.send(users, [("Ada", "x")])
    with pytest.raises(TopicError, match=f"egress test/out: topic {out} at .* has no partition 7"):
        run(kafka.module({users: ["test.fns/write"]}), functions, checkpoint)
