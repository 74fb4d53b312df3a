# SPDX-License-Identifier: Apache-2.0
"""Planes, carriers and airports as users launch them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from flights import app, data
from harness import KafkaHarness, run
from programs import FileClock
from pyspark import cloudpickle
from submitting import EXAMPLES, submit

from statefun.dev import EmbeddedKafka
from statefun.sdk.functions import default_functions

# Workers cannot import what lies beside a program that was not launched.
cloudpickle.register_pickle_by_value(app)  # type: ignore[no-untyped-call] # as pyspark has it

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


def test_a_plane_that_does_not_fly_on_is_reported_once(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Each leg takes back the reminder of the one before; the last one's comes."""
    kafka = KafkaHarness(broker, "")
    for topic, partitions in data.TOPICS.items():
        broker.create_topic(topic, partitions=partitions)
    file = EXAMPLES / "flights" / "module.yaml"
    module = file.read_text().replace("${KAFKA_ADDRESS:-localhost:9092}", kafka.address)
    flights, _ = data.load(3_000)
    kafka.send("flights", data.records(flights))
    clock = FileClock(tmp_path / "clock")
    folder = tmp_path / "checkpoint"

    grounded = []
    for days in (0, 1.9, 2, 9):
        clock.set(days * 86_400)
        run(module, default_functions, folder, clock=clock, records_per_batch=1_000)
        alerts = [alert.value for alert in kafka.receive("alerts")]
        grounded.append(sorted(alert for alert in alerts if alert.endswith(" days")))

    last_airports = data.expected(flights)["plane"].items()
    expected = sorted(
        f"{id_}: at {plane['last_airport']} for 2 days" for id_, plane in last_airports
    )
    assert grounded == [[], [], expected, expected]
