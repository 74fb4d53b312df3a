# SPDX-License-Identifier: Apache-2.0
"""Pausing, draining, restarting and stopping a real application loses nothing, and repeats nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from harness import KafkaHarness, wait
from killed_application import counting_program, running
from local_servers import free_port, served
from patience import SECONDS

from statefun.cli import main
from statefun.inspect.admin_client import AdminClient
from statefun.inspect.status_command import NOT_HEALTHY
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.pauses import PAUSED_FILE
from statefun.runtime.control import RunEnding
from statefun.runtime.http_server import ListenAddress
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.sdk.address import Address
from statefun.sdk.context import Context
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.message import Message
from statefun.sdk.primitives import IntType
from statefun.sdk.value_spec import ValueSpec

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=1.4)]

HOPS = 30


def functions(*topics: str) -> StatefulFunctions:
    """Return functions: one numbers the messages of an address, one passes a message on."""
    registry = StatefulFunctions()

    @registry.bind("test/number", [ValueSpec("count", IntType)])
    def number(ctx: Context, message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        for index, topic in enumerate(topics):
            record = KafkaEgressMessage.for_egress(f"test/out{index or ''}").with_topic(topic)
            text = f"{message.as_string()} {ctx.storage.count}"
            ctx.send(record.with_key(ctx.address.id).with_value(text).build())

    @registry.bind("test/hop", [ValueSpec("count", IntType)])
    def hop(ctx: Context, message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        name, left = message.as_string().rsplit(" ", 1)
        if left == "0":
            ctx.send(Address("test/number", name), name)
        else:
            ctx.send(Address("test/hop", f"{name}-{left}"), f"{name} {int(left) - 1}")

    return registry


def as_text(module: str) -> str:
    """Return a module whose records are texts."""
    return module.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")


@contextmanager
def begun(
    module: str, registry: StatefulFunctions, checkpoint: Path, **settings: Any
) -> Iterator[tuple[Application, Future[Summary]]]:
    """Run an application during the block; it is stopped at the end if it still runs."""
    arguments: dict[str, object] = {"checkpoint": checkpoint, **settings}
    resolved = Settings.resolve({}, None, kafka_timeout=timedelta(seconds=10), **arguments)
    application = Application(parse_module(as_text(module)), registry, resolved)
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(application.run)
        try:
            yield application, ended
        finally:
            application.control.end(RunEnding.STOP)
            ended.result(SECONDS)


def command(name: str, checkpoint: Path, *options: str) -> None:
    """Run a command of the command line, as a person does while the application runs."""
    assert main([name, str(checkpoint), *options]) == 0


def out(kafka: KafkaHarness, topic: str) -> Callable[[], list[str]]:
    """Return a function that returns the values of a topic."""
    return lambda: [record.value for record in kafka.receive(topic)]


def two_ingresses(kafka: KafkaHarness, first: str, second: str) -> str:
    """Return a module with an ingress for each of two topics."""
    module = kafka.module({first: ["test/number"]}, semantic="exactly-once")
    ingress, _, _ = module.partition("---")
    other = ingress.replace("test/in", "test/in2").replace(first, second)
    return f"{other}---\n{module}"


def test_a_paused_ingress_keeps_its_place_across_restarts(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Others go on meanwhile, and its lag shows what waits; after it is resumed, each record is read once, in order."""
    first, second, results = (kafka.topic(name) for name in ("first", "second", "results"))
    module, seen = two_ingresses(kafka, first, second), out(kafka, results)
    registry, port = functions(results), free_port()
    client = AdminClient(ListenAddress.parse(port))
    with begun(module, registry, checkpoint) as (application, _):
        kafka.send(first, [("a", "1")])
        kafka.send(second, [("b", "1")])
        wait(lambda: sorted(seen()) == ["1 1", "1 1"])

        command("pause", checkpoint, "--ingress", "test/in")
        wait(lambda: "paused now: ingress test/in" in caplog.text)
        # A micro-batch that is planned already may still read: let it end.
        kafka.send(second, [("b", "2")])
        wait(lambda: "2 2" in seen())
        kafka.send(first, [("a", "2"), ("a", "3")])
        kafka.send(second, [("b", "3")])
        wait(lambda: "3 3" in seen())
        assert len(seen()) == 4

        restarts = application.control.restarts
        command("restart", checkpoint)
        wait(lambda: application.control.restarts > restarts)
        kafka.send(second, [("b", "4")])
        wait(lambda: "4 4" in seen())
        assert len(seen()) == 5
    with begun(module, registry, checkpoint, admin=port) as (application, _):
        kafka.send(second, [("b", "5")])
        wait(lambda: "5 5" in seen())
        assert len(seen()) == 6
        wait(lambda: [each["lag"] for each in client.get("/ingresses")] in ([2, 0], [0, 2]))

        command("resume", checkpoint, "--ingress", "test/in")
        wait(lambda: len(seen()) == 8)
    received = [(record.key, record.value) for record in kafka.receive(results)]
    assert [value for key, value in received if key == "a"] == ["1 1", "2 2", "3 3"]
    assert [value for key, value in received if key == "b"] == [f"{n} {n}" for n in range(1, 6)]


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_paused_egress_loses_and_repeats_nothing(
    kafka: KafkaHarness, checkpoint: Path, lanes: int
) -> None:
    """Other egresses go on, also after a restart; afterwards it publishes all, in order."""
    source, one, two = (kafka.topic(name) for name in ("source", "one", "two"))
    module = kafka.module({source: ["test/number"]}, semantic="exactly-once")
    egress = module.rpartition("---")[2].replace("test/out", "test/out1")
    module, registry = f"{module}---{egress}", functions(one, two)
    seen_one, seen_two = out(kafka, one), out(kafka, two)
    with begun(module, registry, checkpoint, egress_lanes=lanes) as (application, _):
        kafka.send(source, [("a", "1"), ("b", "1")])
        wait(lambda: len(seen_one()) == len(seen_two()) == 2)

        command("pause", checkpoint, "--egress", "test/out")
        wait(lambda: bool(application.control.pauses.paused.egresses))
        kafka.send(source, [("a", "2"), ("b", "2")])
        wait(lambda: len(seen_two()) == 4)
    with begun(module, registry, checkpoint, egress_lanes=lanes) as (application, _):
        kafka.send(source, [("a", "3"), ("b", "3")])
        wait(lambda: len(seen_two()) == 6)
        assert len(seen_one()) == 2

        command("resume", checkpoint, "--egress", "test/out")
        wait(lambda: len(seen_one()) == 6)
    for topic in (one, two):
        received = [(record.key, record.value) for record in kafka.receive(topic)]
        for key in "ab":
            values = [value for each, value in received if each == key]
            assert values == ["1 1", "2 2", "3 3"]


@pytest.mark.long(minutes=0.7)
def test_a_paused_application_handles_nothing_and_keeps_everything(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """It may be paused before its first record; messages under way arrive once it is resumed."""
    source, results = kafka.topic("source"), kafka.topic("results")
    module, seen = (
        kafka.module({source: ["test/hop"]}, semantic="exactly-once"),
        out(kafka, results),
    )
    with begun(module, functions(results), checkpoint):
        wait((checkpoint / PAUSED_FILE).exists)
    command("pause", checkpoint)
    kafka.send(source, [("a", f"a {HOPS}")])
    with begun(module, functions(results), checkpoint, available_now=True) as (_, ended):
        ended.result(SECONDS)  # it has nothing to do
    assert seen() == []
    with begun(module, functions(results), checkpoint):
        command("resume", checkpoint)
        wait(lambda: seen() == ["a 1"])


@pytest.mark.long(minutes=0.5)
def test_a_drained_application_has_delivered_and_published_all_that_it_has_read(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """It reads no later record, which the next run reads."""
    source, results = kafka.topic("source"), kafka.topic("results")
    module = kafka.module({source: ["test/hop"]}, semantic="exactly-once")
    seen = out(kafka, results)
    with begun(module, functions(results), checkpoint) as (_, ended):
        kafka.send(source, [("a", f"a {HOPS}")])
        wait(lambda: kafka.group_offsets("tests", source) == [1])  # read, and hops are to follow
        command("drain", checkpoint)
        summary = ended.result(SECONDS)
        assert seen() == ["a 1"]
        assert summary.backlog == 0
    kafka.send(source, [("b", "b 0")])
    with begun(module, functions(results), checkpoint):
        wait(lambda: seen() == ["a 1", "b 1"])


SERVED = """
from statefun import *

@function("served/pass")
def pass_on(ctx, message):
    ctx.send(message_builder("test/number", ctx.address.id, str_value=message.as_string()))
"""


def test_a_drained_application_has_handled_the_messages_that_wait_for_an_endpoint(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then it goes on, and the log says why."""
    source, results, port = kafka.topic("source"), kafka.topic("results"), free_port()
    module, seen = kafka.module({source: ["served/pass"]}), out(kafka, results)
    module += f"""
---
kind: io.statefun.endpoints.v2/http
spec:
  functions: served/*
  urlPathTemplate: http://127.0.0.1:{port}/{{function.name}}
  transport: {{call: 500ms}}
"""
    kafka.send(source, [("a", "1")])
    with begun(module, functions(results), checkpoint) as (_, ended):
        wait(lambda: "messages to its functions wait" in caplog.text)
        command("drain", checkpoint)
        wait(lambda: "drained, except for 1 messages that wait for endpoints" in caplog.text)
        assert not ended.done()
        with served(tmp_path, port, SERVED):
            assert ended.result(SECONDS).backlog == 0
        assert seen() == ["1 1"]


def test_a_stopped_application_ends_successfully(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Its status is that of its checkpoint."""
    source, results = kafka.topic("source"), kafka.topic("results")
    module = kafka.module({source: ["test/number"]}, semantic="exactly-once")
    with begun(module, functions(results), checkpoint) as (_, ended):
        wait((checkpoint / PAUSED_FILE).exists)
        assert main(["status", str(checkpoint), "--check"]) == 0
        command("stop", checkpoint)
        ended.result(SECONDS)
    assert main(["status", str(checkpoint), "--check"]) == NOT_HEALTHY


@pytest.mark.long(minutes=0.9)
def test_what_is_paused_stays_paused_when_all_processes_are_killed(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With records in the outbox, and others unread; in the end each is published once, in order."""
    source, results = kafka.topic("source"), kafka.topic("results")
    module = kafka.module({source: ["test/number"]}, semantic="exactly-once")
    (tmp_path / "module.yaml").write_text(as_text(module))
    (tmp_path / "app.py").write_text(counting_program(results))
    log = tmp_path / "log"
    checkpoint, seen = tmp_path / ".statefun" / "app", out(kafka, results)

    def has_waiting_records() -> bool:
        capsys.readouterr()
        command("status", checkpoint, "--json")
        return int(json.loads(capsys.readouterr().out)["outbox"]) > 0

    with running(tmp_path):
        kafka.send(source, [("a", "1")])
        wait(lambda: seen() == ["1 1"])
        command("pause", checkpoint, "--egress", "test/out")
        wait(lambda: "paused now: egress test/out" in log.read_text())
        wait(lambda: not has_waiting_records())
        kafka.send(source, [("a", "2")])
        wait(has_waiting_records)
        command("pause", checkpoint, "--ingress", "test/in")
        wait(lambda: "paused now: ingress test/in, egress test/out" in log.read_text())
        kafka.send(source, [("a", "3")])
    with running(tmp_path) as process:
        wait(lambda: log.read_text().count("statefun: running") == 2)
        assert process.poll() is None
        assert seen() == ["1 1"]
        command("resume", checkpoint, "--egress", "test/out")
        wait(lambda: seen() == ["1 1", "2 2"])
    with running(tmp_path):
        wait(lambda: log.read_text().count("statefun: running") == 3)
        assert seen() == ["1 1", "2 2"]
        command("resume", checkpoint, "--ingress", "test/in")
        wait(lambda: seen() == ["1 1", "2 2", "3 3"])


def test_a_bounded_run_reads_on_after_a_pause_during_a_long_call(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for the call only when it has read everything."""
    inputs, results, marks = kafka.topic("in"), kafka.topic("out"), tmp_path / "marks"
    marks.touch()
    others = [str(number) for number in range(8)]
    kafka.send(inputs, [(id_, "") for id_ in ("long", *others)])
    registry = StatefulFunctions()

    @registry.bind("test/slow", detach_after=timedelta(milliseconds=50))
    async def slow(ctx: Context, _message: Message) -> None:
        with marks.open("a") as file:
            file.write("x")
        if ctx.address.id == "long":
            for _ in range(800):
                await asyncio.sleep(0.05)
                if handled() > len(others):
                    break
            value = f"beside {handled() - 1}"
            ctx.send(KafkaEgressMessage("test/out", topic=results, value=value))

    def handled() -> int:
        return marks.stat().st_size

    def has_stopped() -> bool:
        before = handled()
        time.sleep(2)
        return handled() == before

    module = kafka.module({inputs: ["test/slow"]})
    options: dict[str, Any] = {"available_now": True, "records_per_batch": 1}
    with begun(module, registry, checkpoint, **options) as (_, ended):
        wait(lambda: handled() > 0)
        command("pause", checkpoint, "--ingress", "test/in")
        wait(lambda: "paused now: ingress test/in" in caplog.text)
        wait(has_stopped)
        assert handled() <= len(others)
        command("resume", checkpoint, "--ingress", "test/in")
        ended.result(SECONDS)

    assert out(kafka, results)() == [f"beside {len(others)}"]
