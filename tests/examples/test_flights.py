# SPDX-License-Identifier: Apache-2.0
"""Planes, carriers and airports as users launch them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from flights import app, data
from harness import KafkaHarness, Record, run
from nycflights import read_flights
from pyspark import cloudpickle
from submitting import EXAMPLES, submit

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.dev.spark_application import FileClock
from statefun.sdk.functions import default_functions

# Workers cannot import modules beside a program that was not launched.
cloudpickle.register_pickle_by_value(app)  # type: ignore[no-untyped-call] # as pyspark has it

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.takes(minutes=0.5)]

DRAIN = ("--conf", "spark.statefun.available-now=true")


def own_functions() -> StatefulFunctions:
    """Move the example's functions to a registry of their own: their windows need event time, which others have not."""
    everything, own = default_functions.copy(), StatefulFunctions()
    default_functions.forget(app.__name__)
    for each in everything:
        if default_functions.find(str(each.typename)) is None:
            own.add(each)
    return own


FUNCTIONS = own_functions()


def module_of(kafka: KafkaHarness) -> str:
    """Return the example's module file with the broker of a test."""
    file = EXAMPLES / "flights" / "module.yaml"
    return file.read_text().replace("${KAFKA_ADDRESS:-localhost:9092}", kafka.address)


@pytest.mark.long(minutes=4.5)
def test_totals_survive_sigkill(own_broker: EmbeddedKafka, tmp_path: Path) -> None:
    """Killed while messages travel, everybody ends with the totals that pandas computes, and so does each hour."""
    kafka = KafkaHarness(own_broker, "")
    for topic, partitions in data.TOPICS.items():
        own_broker.create_topic(topic, partitions=partitions)
    flights, _ = data.load(5_000)
    expected = data.expected(flights)
    kafka.send("flights", data.records(flights))
    options = (*DRAIN, "--conf", "spark.statefun.records-per-batch=800")

    process = submit(own_broker, "flights", tmp_path, *options)
    while len(list(tmp_path.glob("checkpoint/commits/[0-9]*"))) < 3:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert submit(own_broker, "flights", tmp_path, *options).wait() == 0
    for kind, by_id in expected.items():
        kafka.send(f"{kind}-reports", ((id_, b"{}") for id_ in by_id))
    run(module_of(kafka), FUNCTIONS, tmp_path / "checkpoint", final_watermark=True)

    totals = {record.key or "": record.value for record in kafka.receive("totals")}
    assert data.wrong(expected, totals) == []
    assert len(totals) == sum(map(len, expected.values()))
    # In whatever order planes report, no airport has 50 of these arrivals an hour late on average.
    assert kafka.receive("alerts") == []
    hours = {record.key or "": record.value for record in kafka.receive("hours")}
    assert data.wrong_hours(data.expected_hours(flights), hours) == []


def test_a_plane_that_does_not_fly_on_is_reported_once(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    """Each leg takes back the reminder of the one before; the last one's comes."""
    kafka = KafkaHarness(broker, "")
    for topic, partitions in data.TOPICS.items():
        broker.create_topic(topic, partitions=partitions)
    flights, _ = data.load(3_000)
    kafka.send("flights", data.records(flights))
    clock = FileClock(tmp_path / "clock")
    folder = tmp_path / "checkpoint"

    grounded = []
    for days in (0, 1.9, 2, 9):
        clock.set(days * 86_400)
        run(module_of(kafka), FUNCTIONS, folder, clock=clock, records_per_batch=1_000)
        alerts = [alert.value for alert in kafka.receive("alerts")]
        grounded.append(sorted(alert for alert in alerts if alert.endswith(" days")))

    last_airports = data.expected(flights)["plane"].items()
    expected = sorted(
        f"{id_}: at {plane['last_airport']} for 2 days" for id_, plane in last_airports
    )
    assert grounded == [[], [], expected, expected]


def test_flights_without_a_tail_number_are_dead_letters(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The real records that have no key end up there, each once; the others are processed."""
    inputs, out, dead = kafka.topic("in", 2), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["test.fns/relay"]}, dead_letters=dead)
    functions = StatefulFunctions()

    @functions.bind("test.fns/relay")
    def relay(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.raw_value()))

    known, without = read_flights(["tailnum", "carrier"])
    keyless: list[Record] = [(None, f"flight {number}") for number in range(without)]
    kafka.send(inputs, keyless)
    kafka.send(inputs, known.head(3000).astype(str).itertuples(index=False, name=None))

    summary = run(module, functions, checkpoint)

    assert summary.dead_letters == without == 2512
    buried = [record.value for record in kafka.receive(dead)]
    assert sorted(buried) == sorted(str(value) for _, value in keyless)
    assert len(kafka.receive(out)) == 3000
