# SPDX-License-Identifier: Apache-2.0
"""Records that are found by the messages with which the client reports failures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from harness import KafkaHarness
from hypothesis import given
from hypothesis import strategies as st
from patience import SECONDS

from statefun.engine.sinks import EgressRecord
from statefun.runtime.egress.produced import PlainRecords, other_arguments

NAMES = st.sampled_from(["a", "b"])
BYTES = st.sampled_from([None, b"", b"x", b"y" * 300])
NOTHING = st.none()
PLAIN = st.builds(EgressRecord, NAMES, BYTES, BYTES, NOTHING, NOTHING, NOTHING)
OTHER = st.builds(
    EgressRecord,
    NAMES,
    BYTES,
    BYTES,
    st.just([("h", b"1")]),
    st.sampled_from([None, 0, 7]),
    st.sampled_from([None, 5]),
)
RECORDS = st.lists(PLAIN | OTHER, max_size=12)


@pytest.fixture(scope="module")
def unreachable() -> Iterator[Producer]:
    """Return a producer whose cluster does not exist, so that it reports each record as not written."""
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "error_cb": lambda _: None}
    )
    yield producer
    producer.purge()
    producer.flush(10)


@given(st.lists(PLAIN, max_size=12))
def test_each_reported_message_is_found_as_the_record_that_it_was(
    unreachable: Producer, records: list[EgressRecord]
) -> None:
    """Each report of the client leads to a record with the same content, and all reports together to all records."""
    plain = PlainRecords(dict(enumerate(records)))
    found: list[tuple[EgressRecord, int]] = []

    def on_delivery(record: EgressRecord, error: KafkaError | None, message: Message) -> None:
        assert error is not None
        found.append((record, plain.take(message)))

    for record in records:
        unreachable.produce(
            record.topic, record.value, record.key, on_delivery=partial(on_delivery, record)
        )
    unreachable.purge()
    unreachable.flush(10)

    assert sorted(number for _, number in found) == list(range(len(records)))
    assert all(records[number] == record for record, number in found)


@given(RECORDS, st.data())
def test_a_record_is_found_once(records: list[EgressRecord], data: st.DataObject) -> None:
    """Plain records that were removed by their numbers are not found, and all others exactly once."""
    numbers = range(10, 10 + len(records))
    plain = PlainRecords(dict(zip(numbers, records, strict=True)))
    removed = data.draw(st.sets(st.sampled_from(numbers)) if records else st.just(set[int]()))
    for number in removed:
        plain.remove(number)

    for number, record in zip(numbers, records, strict=True):
        message = Message(topic=record.topic, key=record.key, value=record.value)
        if number not in removed and record == EgressRecord(*record[:3], None):
            assert records[plain.take(message) - 10] == record

    for record in records:
        message = Message(topic=record.topic, key=record.key, value=record.value)
        with pytest.raises(LookupError, match=f"for topic {record.topic} was given"):
            plain.take(message)


@pytest.mark.broker
def test_a_record_of_the_first_moment_of_1970_has_no_other_time(kafka: KafkaHarness) -> None:
    """For the client, a timestamp of 0 is none: the record is written with the next one instead of the present time."""
    topic = kafka.topic("out")
    producer = Producer({"bootstrap.servers": kafka.address})
    for millis in (0, 1, 5):
        record = EgressRecord(topic, b"k", b"v", None, 0, millis)
        producer.produce(record.topic, record.value, record.key, **other_arguments(record))
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "x"})
    consumer.assign([TopicPartition(topic, 0, 0)])

    messages = consumer.consume(3, SECONDS)

    consumer.close()
    assert [message.timestamp()[1] for message in messages] == [1, 1, 5]
