# SPDX-License-Identifier: Apache-2.0
"""Event time on Spark and a real broker: the watermark is fixed with the plan of a micro-batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from harness import KafkaHarness, run, running, wait
from pyspark import cloudpickle

from statefun import Address, Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.cli import main
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=0.6)]

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def program(out: str) -> StatefulFunctions:
    """Return functions: the first one relays its records to the second one, which writes what it sees."""
    functions = StatefulFunctions()

    def millis(time: datetime | None) -> int | None:
        return None if time is None else (time - EPOCH) // timedelta(milliseconds=1)

    @functions.bind("t.fns/first")
    def first(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=seen(ctx, message)))
        ctx.send(Address("t.fns/second", "all"), message.as_string())

    @functions.bind("t.fns/second")
    def second(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=seen(ctx, message)))

    def seen(ctx: Context, message: Message) -> str:
        name, at = ctx.address.typename, json.loads(message.as_string())["n"]
        return json.dumps([name[6:], at, millis(ctx.event_time), millis(ctx.watermark)])

    return functions


def module(kafka: KafkaHarness, topic: str, event_time: str, dead: str) -> str:
    """Return a module file whose ingress has event time."""
    text = kafka.module({topic: ["t.fns/first"]}, dead_letters=dead, on_failure="dead-letter")
    text = text.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")
    return text.replace("  topics:\n", f"  eventTime: {event_time}\n  topics:\n", 1)


def value(number: int, at: int) -> str:
    """Return the value of a record."""
    return json.dumps({"n": number, "at": at})


def test_watermarks_are_part_of_the_plan(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages hold it, later runs go on with it, and a repeated micro-batch sees the same one."""
    topic, out, dead = kafka.topic("in", 2), kafka.topic("out"), kafka.topic("dead")
    text = module(kafka, topic, "{field: at, outOfOrder: 1s, idle: 1h}", dead)
    checkpoint, functions = tmp_path / "checkpoint", program(out)
    folder = Folder.at(checkpoint)
    log = CommitLog(folder)
    start = 1_700_000_000_000

    def step(expected: int) -> list[list[Any]]:
        run(text, functions, checkpoint)
        published = [json.loads(each.value) for each in kafka.receive(out)]
        assert len(published) == expected
        return published

    kafka.send(topic, [("Ada", value(1, start + 10_000))], partition=0)
    kafka.send(topic, [("Bob", value(2, start + 4_000)), ("Bob", "{}")], partition=1)
    first = step(4)
    after_first = feedback_offset(log, log.newest()).event
    kafka.send(topic, [("Bob", value(3, start + 60_000))], partition=1)
    second = step(6)[4:]
    # A micro-batch that is planned and not committed is run again, with more records and a later clock.
    batch = next(
        number
        for number in range(log.newest(), 0, -1)
        if log.end_offsets(number)[0] != log.end_offsets(number - 1)[0]
    )
    planned = feedback_offset(log, batch).event
    for number in range(log.newest(), batch - 1, -1):
        folder.child("commits").remove(str(number))
        if number > batch:
            folder.child("offsets").remove(str(number))
            folder.child("offsets").remove(f".{number}.crc")
        folder.child("commits").remove(f".{number}.crc")
        Outbox(folder).remove(number)
    kafka.send(topic, [("Ada", value(4, start + 90_000))], partition=0)
    repeated = step(10)[6:]
    assert main(["watermark", str(checkpoint)]) == 0
    printed = capsys.readouterr().out

    assert sorted(first[:2]) == [
        ["first", 1, start + 10_000, None],
        ["first", 2, start + 4_000, None],
    ]
    assert sorted(first[2:]) == [
        ["second", 1, start + 10_000, start + 3_000],
        ["second", 2, start + 4_000, start + 3_000],
    ]
    assert after_first is not None
    assert after_first.watermark == start + 3_000
    assert [each.value for each in kafka.receive(dead)] == ["{}"]
    assert second == [
        ["first", 3, start + 60_000, start + 3_000],
        ["second", 3, start + 60_000, start + 9_000],
    ]
    assert planned is not None
    assert planned.watermark == start + 3_000
    assert repeated[0] == second[0]
    assert next(each for each in repeated if each[1] == 4)[:3] == ["first", 4, start + 90_000]
    assert f"partition {topic}/1, which is the furthest behind" in printed
    assert "watermark: 2023-11-14T22:14:19.000+00:00" in printed


def test_an_empty_partition_of_a_bounded_run_stops_nothing(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    """A bounded run asks the broker whether a partition without records is empty."""
    topic, out, dead = kafka.topic("in", 3), kafka.topic("out"), kafka.topic("dead")
    text = module(kafka, topic, "{field: at, outOfOrder: 1s, idle: 1h}", dead)
    kafka.send(topic, [("Ada", value(1, 10_000_000_000_000))], partition=0)
    kafka.send(topic, [("Bob", value(2, 1_000_000_005_000))], partition=1)
    kafka.send(topic, [("Ada", value(3, 1_000_000_009_000))], partition=0)

    summary = run(text, program(out), tmp_path / "checkpoint")

    # The record of the year 2286 does not count.
    assert summary.watermark == EPOCH + timedelta(milliseconds=1_000_000_004_000)
    assert summary.future_records == 1


def test_an_empty_partition_does_not_stop_event_time(kafka: KafkaHarness, tmp_path: Path) -> None:
    """While the application runs, a partition that is read to its end becomes idle; the clock then moves event time."""
    topic, out, dead = kafka.topic("in", 2), kafka.topic("out"), kafka.topic("dead")
    text = module(kafka, topic, "{outOfOrder: 0s, idle: 1s, whenAllIdle: follow}", dead)
    settings = Settings.resolve({}, None, checkpoint=tmp_path / "checkpoint")
    application = Application(parse_module(text), program(out), settings)

    def sees() -> Callable[[], bool]:
        numbers = iter(range(10_000))

        def look() -> bool:
            kafka.send(topic, [("Ada", value(next(numbers), 0))], partition=0)
            return any(json.loads(each.value)[3] is not None for each in kafka.receive(out))

        return look

    with running(application):
        wait(sees())
    last = [json.loads(each.value) for each in kafka.receive(out)]

    marks = [mark for name, _, _, mark in last if name == "first" and mark is not None]
    assert marks == sorted(marks)
    assert all(mark <= time for name, _, time, mark in last if name == "second" and mark)
