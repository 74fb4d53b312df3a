# SPDX-License-Identifier: Apache-2.0
import threading
from datetime import timedelta

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness
from patience import SECONDS

from statefun.dev import records
from statefun.dev.records import placed_records, read_records

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(kafka: KafkaHarness) -> str:
    """Create a topic."""
    return kafka.topic("payments")


@pytest.fixture
def paying(kafka: KafkaHarness, topic: str) -> Producer:
    """Return a producer with an open transaction, whose record the broker has."""
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"paid")
    assert producer.flush(SECONDS) == 0
    return producer


def test_records_of_a_transaction_that_ends_are_read(
    kafka: KafkaHarness, topic: str, paying: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster confirms a commit before readers see its records; they are waited for."""
    monkeypatch.setattr(records, "_COMMIT", timedelta(seconds=SECONDS))
    # Late enough for the reader to find the transaction open, on any but the slowest machine.
    committing = threading.Timer(0.5, paying.commit_transaction, [SECONDS])

    committing.start()
    read = read_records(kafka.address, topic)
    committing.join()

    assert read == [(None, b"paid")]


def test_an_open_transaction_holds_no_reader_up(
    kafka: KafkaHarness, topic: str, paying: Producer
) -> None:
    """What comes before an open transaction is read; its own records and later ones are not."""
    kafka.send(topic, [("Ada", "after")])
    during = placed_records(kafka.address, topic)
    paying.abort_transaction(SECONDS)
    after = placed_records(kafka.address, topic)

    assert [record.value for record in during] == []
    assert [record.value for record in after] == [b"after"]
