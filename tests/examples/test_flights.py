# SPDX-License-Identifier: Apache-2.0
"""Planes, carriers and airports as users launch them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from flights import data
from harness import KafkaHarness
from submitting import submit

from statefun.dev import EmbeddedKafka

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DRAIN = ("--conf", "spark.statefun.available-now=true")


def test_totals_survive_sigkill(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Killed while messages travel, everybody ends with the totals that pandas computes."""
    kafka = KafkaHarness(own_broker, "")
    for topic, partitions in data.TOPICS.items():
        own_broker.create_topic(topic, partitions=partitions)
    flights, _ = data.load(12_000)
    expected = data.expected(flights)
    kafka.send("flights", data.records(flights))
    options = (*DRAIN, "--conf", "spark.statefun.records-per-batch=2000")

    process = submit(own_broker, "flights", tmp_path, *options)
    while len(list(tmp_path.glob("checkpoint/commits/[0-9]*"))) < 3:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert submit(own_broker, "flights", tmp_path, *options).wait() == 0
    for kind, by_id in expected.items():
        kafka.send(f"{kind}-reports", ((id_, b"{}") for id_ in by_id))
    last = submit(own_broker, "flights", tmp_path, *DRAIN).wait()

    assert last == 0, (tmp_path / "log").read_text()
    totals = {record.key or "": record.value for record in kafka.receive("totals")}
    assert data.wrong(expected, totals) == []
    assert len(totals) == sum(map(len, expected.values()))
    alerts = kafka.receive("alerts")
    assert all(int(alert.value.split()[1]) >= 60 for alert in alerts)
