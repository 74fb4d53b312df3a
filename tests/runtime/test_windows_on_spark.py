# SPDX-License-Identifier: Apache-2.0
"""Windows and timers in event time on Spark and a real broker: kills, closing without traffic, and bounded runs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pandas as pd
import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, wait
from killed_application import running
from patience import SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PROGRAM = """
import json
from datetime import datetime, timedelta, timezone

import statefun
from statefun import KafkaEgressMessage
from statefun.windows import Tumbling, Window, WindowContext, windowed


class Sums(Window):
    count: int = 0
    total: int = 0


def publish(ctx: WindowContext, *values: int) -> None:
    start = round(ctx.window.start.timestamp() * 1000)
    text = json.dumps([ctx.address.id, start, *values])
    ctx.send(KafkaEgressMessage("test/out", topic="TOPIC", key=ctx.address.id, value=text))


@windowed("test/sums", Tumbling(timedelta(seconds=5), grace=timedelta(seconds=1)))
def add(ctx: WindowContext, text: str, sums: Sums) -> None:
    sums.count += 1
    sums.total += json.loads(text)["n"]


@add.on_close
def close(ctx: WindowContext, sums: Sums) -> None:
    publish(ctx, sums.count, sums.total)


@add.on_late
def late(ctx: WindowContext, text: str) -> None:
    publish(ctx, -1, json.loads(text)["n"])


if __name__ == "__main__":
    statefun.run(**SETTINGS)
"""
PARTITIONS = 3
START = 1_700_000_000_000


def portion(number: int) -> list[tuple[int, str, int, int]]:
    """Return records of some seconds, each with its partition, key, number and time; they are up to a second late."""
    chance = random.Random(number)
    times = (START + number * 3_600_000 + chance.randrange(20_000) for _ in range(400))
    records = [
        (chance.randrange(PARTITIONS), chance.choice("abcdef"), chance.randrange(100), time)
        for time in times
    ]
    return sorted(records, key=lambda record: record[3] + chance.randrange(900))


def send(kafka: KafkaHarness, topic: str, records: list[tuple[int, str, int, int]]) -> None:
    """Write records."""
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 5})
    for partition, key, number, time in records:
        value = json.dumps({"n": number, "at": time})
        producer.produce(topic, value, key, partition=partition)
    assert producer.flush(30) == 0


def expected(*portions: list[tuple[int, str, int, int]]) -> list[list[object]]:
    """Return the windows of records, computed by pandas."""
    frame = pd.DataFrame(
        [record for each in portions for record in each], columns=["partition", "key", "n", "at"]
    )
    frame["start"] = frame["at"] // 5000 * 5000
    sums = frame.groupby(["key", "start"])["n"].agg(["count", "sum"]).reset_index()
    return sorted(map(list, sums.itertuples(index=False)))


@pytest.mark.long(minutes=1.7)
def test_windows_equal_pandas(kafka: KafkaHarness, tmp_path: Path) -> None:
    """Each window closes once with all of its records, from several partitions, through kills, and without traffic."""
    topic, out = kafka.topic("in", PARTITIONS), kafka.topic("out")
    first, second, third = map(portion, range(3))
    module = kafka.module({topic: ["test/sums"]}, semantic="exactly-once").replace(
        "valueType: io.statefun.types/string", "valueFormat: {type: text}"
    )
    settings: dict[str, object] = {
        "checkpoint": str(tmp_path / "checkpoint"),
        "kafka_timeout": "60s",
    }

    def write(event_time: str, **further: object) -> None:
        text = module.replace("  topics:\n", f"  eventTime: {event_time}\n  topics:\n", 1)
        tmp_path.joinpath("module.yaml").write_text(text)
        program = PROGRAM.replace("TOPIC", out).replace("SETTINGS", repr(settings | further))
        tmp_path.joinpath("app.py").write_text(program)

    def results() -> list[list[object]]:
        return sorted(json.loads(record.value) for record in kafka.receive(out))

    write("{field: at, outOfOrder: 1s, idle: 8s, whenAllIdle: follow}")
    with running(tmp_path):
        send(kafka, topic, first)
        wait(lambda: len(results()) >= len(expected(first)))
        send(kafka, topic, second)
        wait(lambda: len(results()) > len(expected(first)))
    with running(tmp_path):
        wait(lambda: len(results()) >= len(expected(first, second)))
    assert results() == expected(first, second)

    write("{field: at, outOfOrder: 1s, idle: 1h}", available_now=True, final_watermark=True)
    send(kafka, topic, third)
    with running(tmp_path) as process:
        assert process.wait(SECONDS) == 0, tmp_path.joinpath("log").read_text()
    assert results() == expected(first, second, third)
