# SPDX-License-Identifier: Apache-2.0
"""Bounded runs on a real broker: nothing is read too far, and nothing is lost for later runs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from harness import KafkaHarness, run, wait
from patience import PATIENCE

from statefun import (
    Context,
    KafkaEgressMessage,
    Message,
    ModuleError,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.module.loader import parse_module
from statefun.module.location import Location
from statefun.module.model import KafkaIngress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.ingress import stopping
from statefun.runtime.ingress.stopping import Bounds, rewrite_read_offsets
from statefun.sdk.address import TypeName
from statefun.sdk.primitives import IntType

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.takes(minutes=1.9)]

DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def echo(out: str) -> StatefulFunctions:
    """Return functions that write their messages, through another one that keeps state."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/first")
    def first(ctx: Context, message: Message) -> None:
        text = message.raw_value().decode()
        ctx.send(message_builder("test.fns/last", "x", str_value=text))

    @functions.bind("test.fns/last", specs=[ValueSpec("count", IntType)])
    def last(ctx: Context, message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.as_string()))

    return functions


def module(kafka: KafkaHarness, topic: str, stop: str | None) -> str:
    """Write a module file whose ingress stops there."""
    text = kafka.module({topic: ["test.fns/first"]}, group=topic, value_type="test/text")
    return text.replace("  topics:", f"  stopPosition: {stop}\n  topics:") if stop else text


def fill(kafka: KafkaHarness, topic: str, partition: int, numbers: range) -> None:
    """Write records that say where they are."""
    records = [(f"key{number % 3}", f"{partition}/{number}") for number in numbers]
    kafka.send(topic, records, partition=partition)


def received(kafka: KafkaHarness, out: str) -> list[str]:
    """Return the written records, sorted."""
    return sorted(record.value for record in kafka.receive(out))


def expected(*ranges: range) -> list[str]:
    """Return the values of each partition's records, sorted."""
    return sorted(f"{n}/{number}" for n, numbers in enumerate(ranges) for number in numbers)


@pytest.mark.long(minutes=0.8)
@pytest.mark.parametrize("available_now", [False, True])
def test_a_run_stops_at_offsets_and_the_next_one_goes_on_there(
    kafka: KafkaHarness, checkpoint: Path, *, available_now: bool
) -> None:
    """Spark has read further, at once; neither the group's offsets nor a later run show it."""
    topic, out = kafka.topic("in", 3), kafka.topic("out")
    for partition in range(3):
        fill(kafka, topic, partition, range(10))
    stop = f"{{type: specific-offsets, offsets: [{topic}/0: 4, {topic}/1: 0, {topic}/2: 9]}}"
    run(module(kafka, topic, stop), echo(out), checkpoint, available_now=available_now)
    assert received(kafka, out) == expected(range(4), range(0), range(9))
    assert kafka.group_offsets(topic, topic, 3) == [4, 0, 9]
    stop = f"{{type: specific-offsets, offsets: [{topic}/0: 2, {topic}/1: 5, {topic}/2: 9]}}"
    run(module(kafka, topic, stop), echo(out), checkpoint, available_now=available_now)
    assert received(kafka, out) == expected(range(4), range(5), range(9))
    assert kafka.group_offsets(topic, topic, 3) == [4, 5, 9]
    run(module(kafka, topic, None), echo(out), checkpoint)
    assert received(kafka, out) == expected(range(10), range(10), range(10))
    assert not (checkpoint / "stops.json").exists()


def test_a_run_stops_at_the_present_ends(kafka: KafkaHarness, checkpoint: Path) -> None:
    """It reads small batches, and delivers all messages that they cause; empty topics end it as well."""
    topic, out = kafka.topic("in", 2), kafka.topic("out")
    text = module(kafka, topic, "{type: latest}")
    summary = run(text, echo(out), checkpoint, available_now=False)
    assert summary.invocations == 0
    for partition in range(2):
        fill(kafka, topic, partition, range(25))
    run(text, echo(out), checkpoint, available_now=False, records_per_batch=10)
    assert received(kafka, out) == expected(range(25), range(25))
    run(text, echo(out), checkpoint, available_now=False)
    assert received(kafka, out) == expected(range(25), range(25))


@pytest.mark.parametrize("start", ["{type: latest}", "{type: group-offsets}"])
def test_runs_from_end_to_end_leave_nothing_out(
    kafka: KafkaHarness, checkpoint: Path, start: str
) -> None:
    """The next run goes on at the end of the first run, even if that run found no records."""
    topic, out = kafka.topic("in"), kafka.topic("out")
    fill(kafka, topic, 0, range(2))
    text = module(kafka, topic, "{type: latest}").replace("{type: earliest}", start)
    run(text, echo(out), checkpoint, available_now=False)
    fill(kafka, topic, 0, range(2, 5))
    run(text, echo(out), checkpoint, available_now=False)
    assert received(kafka, out) == [f"0/{number}" for number in range(2, 5)]


@pytest.mark.parametrize("type_", ["date", "at-timestamp"])
def test_a_run_stops_before_a_date(kafka: KafkaHarness, checkpoint: Path, type_: str) -> None:
    """Partitions without a record of that time or later are read to their ends."""
    topic, out = kafka.topic("in", 2), kafka.topic("out")
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(6):
        moment = DATE + timedelta(hours=number)
        producer.produce(
            topic, f"0/{number}", "key", partition=0, timestamp=round(moment.timestamp() * 1000)
        )
    producer.produce(topic, "1/0", "key", partition=1, timestamp=round(DATE.timestamp() * 1000))
    assert producer.flush(30) == 0
    stop = f"{{type: {type_}, date: '{(DATE + timedelta(hours=2)).isoformat()}'}}"
    run(module(kafka, topic, stop), echo(out), checkpoint, available_now=False)
    assert received(kafka, out) == expected(range(2), range(1))


def test_a_run_waits_for_records_that_are_still_to_come(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Partitions that are added in the meantime are left to a later run."""
    topic, out = kafka.topic("in"), kafka.topic("out")
    fill(kafka, topic, 0, range(2))
    text = module(kafka, topic, f"{{type: specific-offsets, offsets: {{{topic}/0: 3}}}}")
    with ThreadPoolExecutor() as threads:
        running = threads.submit(
            run, text, echo(out), checkpoint, available_now=False, trigger=timedelta(seconds=1)
        )
        wait(lambda: len(received(kafka, out)) == 2)
        assert not running.done()
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        wait(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 2)
        fill(kafka, topic, 1, range(3))
        fill(kafka, topic, 0, range(2, 5))
        running.result(PATIENCE.total_seconds())
    assert received(kafka, out) == expected(range(3))
    run(module(kafka, topic, None), echo(out), checkpoint)
    assert received(kafka, out) == expected(range(5), range(3))


def test_a_repeated_batch_ends_no_run_before_new_partitions_are_read(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """After a crash, the planned batch does not know the partition; the run does."""
    topic, out = kafka.topic("in"), kafka.topic("out")
    fill(kafka, topic, 0, range(4))
    text = module(kafka, topic, "{type: latest}")
    run(text, echo(out), checkpoint, available_now=False)
    newest = CommitLog(Folder.at(checkpoint)).newest()
    fill(kafka, topic, 0, range(4, 5))
    planned = (checkpoint / "offsets" / str(newest)).read_text().replace('"0":4', '"0":5')
    assert '"0":5' in planned
    (checkpoint / "offsets" / str(newest + 1)).write_text(planned)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    wait(lambda: len(admin.list_topics(topic).topics[topic].partitions) == 2)
    fill(kafka, topic, 1, range(3))

    run(text, echo(out), checkpoint, available_now=False)

    assert received(kafka, out) == expected(range(5), range(3))


def test_the_offsets_of_a_planned_batch_are_cut_back_as_well(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """After a crash, a planned batch may begin where the batch that is cut back ends."""
    topic, out = kafka.topic("in"), kafka.topic("out")
    fill(kafka, topic, 0, range(10))
    text = module(kafka, topic, f"{{type: specific-offsets, offsets: {{{topic}/0: 4}}}}")
    run(text, echo(out), checkpoint)
    newest = CommitLog(Folder.at(checkpoint)).newest()
    fill(kafka, topic, 0, range(10, 12))
    planned = (checkpoint / "offsets" / str(newest)).read_text().replace('"0":10', '"0":12')
    assert '"0":12' in planned
    (checkpoint / "offsets" / str(newest + 1)).write_text(planned)
    run(module(kafka, topic, None), echo(out), checkpoint)
    assert received(kafka, out) == expected(range(12))


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("{type: earliest}", "Invalid stop position type: earliest; valid values are [latest, "),
        ("{type: date}", "missing required key 'date'"),
    ],
)
def test_a_stop_position_is_one_of_these(kafka: KafkaHarness, stop: str, message: str) -> None:
    """Positions that cannot be an end are refused."""
    with pytest.raises(ModuleError) as refused:
        parse_module(module(kafka, "users", stop))
    assert message in str(refused.value)


def test_reading_the_stops_changes_no_files(checkpoint: Path) -> None:
    """Only the function that rewrites the log of offsets changes it."""
    folder = Folder.at(checkpoint)
    declared = [KafkaIngress(TypeName("t", "in"), "kafka:9092", (), Location("module.yaml", 1, 1))]
    write_framed(folder, "stops.json", json.dumps({"t/in": {"users": {"0": 4}}}).encode())
    for name in ("0", "1"):
        folder.child("offsets").write(name, b'v1\n{}\n{"users":{"0":9}}\n{"batch":-1,"tick":-1}')
    folder.child("commits").write("0", b"v1\n{}")
    log = CommitLog(folder)

    assert not Bounds(folder, log, declared).are_reached()
    before = [log.end_offsets(batch)[0] for batch in (0, 1)]
    IngressOrder(["t/in"]).write(folder)
    rewrite_read_offsets(folder)
    after = [log.end_offsets(batch)[0] for batch in (0, 1)]

    assert before == [{"users": {"0": 9}}] * 2
    assert after == [{"users": {"0": 4}}] * 2


def test_a_record_of_the_date_that_comes_meanwhile_is_not_read(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the end, which is asked for first; or it is found."""
    topic, folder = kafka.topic("in"), Folder.at(checkpoint)
    fill(kafka, topic, 0, range(3))

    def slowly(question: Any) -> Any:
        def ask(*args: Any, **options: Any) -> Any:
            answer = question(*args, **options)
            fill(kafka, topic, 0, range(1))
            return answer

        return ask

    for name in ("readable_watermarks", "dated_offsets"):
        monkeypatch.setattr(stopping, name, slowly(getattr(stopping, name)))
    date = datetime.now(timezone.utc) + timedelta(seconds=1)
    wait(lambda: datetime.now(timezone.utc) > date)
    text = module(kafka, topic, f"{{type: date, date: '{date:%Y-%m-%d %H:%M:%S.000 Z}'}}")
    (ingress,) = parse_module(text).ingresses
    assert isinstance(ingress, KafkaIngress)
    bounds = Bounds(folder, CommitLog(folder), [ingress])

    bounds.decide([{topic: [0]}], [{topic: {"0": -2}}], PATIENCE)

    assert bounds.stops == [{topic: {"0": 3}}]


def test_a_damaged_file_of_stops_is_an_error(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The error names the file."""
    topic, out = kafka.topic("in"), kafka.topic("out")
    checkpoint.mkdir()
    (checkpoint / "stops.json").write_text("{")
    notes: dict[str, Any] = {}
    with pytest.raises(Exception, match=r"stops\.json is damaged"):
        run(module(kafka, topic, None), echo(out), checkpoint)
    write_framed(Folder.at(checkpoint), "stops.json", json.dumps(notes).encode())
    run(module(kafka, topic, None), echo(out), checkpoint)
