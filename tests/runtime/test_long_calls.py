# SPDX-License-Identifier: Apache-2.0
"""Calls that leave their micro-batches, with a real Spark and a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness, run, wait
from pyspark import cloudpickle

from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    OnFailure,
    StatefulFunctions,
    TypedValue,
    ValueSpec,
)
from statefun.engine.left_calls import MOST_LOST
from statefun.module.loader import parse_module
from statefun.runtime import application_run
from statefun.runtime.application import Application
from statefun.runtime.query import Query
from statefun.runtime.settings import Settings
from statefun.sdk.errors import StatefunError

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=0.9)]

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)


def waiting_functions(out: str, factor: float = 0.001) -> StatefulFunctions:
    """Return functions that wait for as many milliseconds as a message says, and count."""
    functions = StatefulFunctions()

    @functions.bind(
        "t.fns/a", [ValueSpec("count", IntType)], detach_after=timedelta(milliseconds=50)
    )
    async def wait(ctx: Context, message: Message) -> None:
        await asyncio.sleep(int(message.raw_value()) * factor)
        ctx.storage.count = (ctx.storage.count or 0) + 1
        value = f"{ctx.storage.count} {message.raw_value().decode()}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=value))

    return functions


def test_a_bounded_run_waits_for_calls_that_have_left(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """All messages are handled once, in order, and each sees the state that the one before has left."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    waits = [3, 400, 5, 600, 1]
    kafka.send(inputs, [(id_, str(wait)) for wait in waits for id_ in ("x", "y", "z")])

    summary = run(
        kafka.module({inputs: ["t.fns/a"]}, value_type="t/bytes"),
        waiting_functions(out),
        checkpoint,
    )

    records = [(record.key, record.value) for record in kafka.receive(out)]
    for id_ in ("x", "y", "z"):
        expected = [f"{number} {wait}" for number, wait in enumerate(waits, 1)]
        assert [value for key, value in records if key == id_] == expected
    assert summary.invocations == len(records)
    assert summary.batches > 1


def test_a_bounded_run_reads_on_while_a_call_is_under_way(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """A call does not hold up records that come after it, in later micro-batches."""
    inputs, out, marks = kafka.topic("in"), kafka.topic("out"), tmp_path / "marks"
    marks.touch()
    others = [str(number) for number in range(6)]
    kafka.send(inputs, [(id_, "") for id_ in ("long", *others)])
    functions = StatefulFunctions()

    @functions.bind("t.fns/a", detach_after=timedelta(milliseconds=50))
    async def waits_for_others(ctx: Context, _message: Message) -> None:
        if ctx.address.id == "long":
            for _ in range(400):
                await asyncio.sleep(0.05)
                if len(marks.read_text()) == len(others):
                    break
        with marks.open("a") as file:
            file.write("x")
            value = f"after {file.tell() - 1}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=value))

    module = kafka.module({inputs: ["t.fns/a"]}, value_type="t/bytes")
    run(module, functions, checkpoint, records_per_batch=2)

    [value] = [record.value for record in kafka.receive(out) if record.key == "long"]
    assert value == f"after {len(others)}"


def test_the_calls_of_a_worker_that_is_killed_are_made_again(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """A worker that ends with a call has no effect but time: the call's effects count once."""
    inputs, out, marks = kafka.topic("in"), kafka.topic("out"), str(tmp_path / "marks")
    kafka.send(inputs, [(id_, str(number)) for number in range(3) for id_ in ("x", "y")])
    functions = StatefulFunctions()

    @functions.bind(
        "t.fns/a", [ValueSpec("count", IntType)], detach_after=timedelta(milliseconds=50)
    )
    async def dies_once(ctx: Context, message: Message) -> None:
        await asyncio.sleep(0.3)
        with Path(marks).open("a") as file:  # noqa: ASYNC230 - it takes no time
            is_first = file.tell() == 0
            file.write(f"{ctx.address.id}{message.raw_value().decode()} ")
        if is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.storage.count = (ctx.storage.count or 0) + 1
        value = f"{ctx.storage.count} {message.raw_value().decode()}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=value))

    module = kafka.module({inputs: ["t.fns/a"]}, value_type="t/bytes")
    try:
        run(module, functions, checkpoint)
    except StatefunError:  # the worker was running a task of a later micro-batch, too
        run(module, functions, checkpoint)

    records = [(record.key, record.value) for record in kafka.receive(out)]
    expected = ["1 0", "2 1", "3 2"]
    assert {key: [own for other, own in records if other == key] for key, _ in records} == {
        "x": expected,
        "y": expected,
    }
    assert len(Path(marks).read_text().split()) > len(records)


@attrs.frozen
class Marked:
    """Functions that mark each end of a worker in a file."""

    marks: str
    """The file with a mark for each end of a worker."""

    def count(self) -> int:
        """Return how often a worker has ended."""
        path = Path(self.marks)
        return len(path.read_text()) if path.exists() else 0


@attrs.frozen
class Deaths(Marked):
    """Functions that run in the same workers, one of which ends them in the middle of tasks of the other."""

    out: str
    """The topic of the records."""

    def functions(self) -> StatefulFunctions:
        """Return the functions."""
        functions = StatefulFunctions()
        functions.register("t.fns/busy", self.busy)
        soon = timedelta(milliseconds=50)
        functions.register("t.fns/a", self.call, on_failure=OnFailure.SKIP, detach_after=soon)
        return functions

    def busy(self, ctx: Context, _message: Message) -> None:
        """Be a task for a while, again and again until enough workers have ended."""
        os.environ["BUSY"] = "yes"
        time.sleep(0.2)
        os.environ["BUSY"] = ""
        if self.count() < MOST_LOST:
            other = "2" if ctx.address.id == "1" else "1"  # which is called in the next micro-batch
            ctx.send(Message("t.fns/busy", other, TypedValue("t/bytes", b"")))

    async def call(self, ctx: Context, message: Message) -> None:
        """Wait, and end the worker if the message says so."""
        await asyncio.sleep(0.4)
        if message.raw_value() == b"deadly":
            for _ in range(200):
                await asyncio.sleep(0.02)
                if os.environ.get("BUSY"):
                    break
            with Path(self.marks).open("a") as file:  # noqa: ASYNC230 - it takes no time
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.send(KafkaEgressMessage("test/out", topic=self.out, key=ctx.address.id, value="well"))


@pytest.mark.long(minutes=0.6)
def test_a_message_that_ends_the_query_each_time_fails_after_some_restarts(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """Spark ends a query with a worker that ends in a task; losses count over the restarts, and neighbours do not fail."""
    inputs, ticks = kafka.topic("in"), kafka.topic("ticks")
    deaths = Deaths(str(tmp_path / "marks"), kafka.topic("out"))
    kafka.send(ticks, [(id_, "") for id_ in "12"])
    kafka.send(inputs, [("x", "harmless"), ("y", "deadly"), ("z", "harmless")])
    module = kafka.module({inputs: ["t.fns/a"], ticks: ["t.fns/busy"]}, value_type="t/bytes")

    summary = run(module, deaths.functions(), checkpoint)

    assert summary.restarts > 0
    assert deaths.count() == MOST_LOST
    assert sorted(record.key or "" for record in kafka.receive(deaths.out)) == ["x", "z"]
    assert summary.skipped == 1


def test_a_message_does_not_fail_although_workers_end_in_order_again_and_again(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """Executors may end more often than a call may crash its worker: daemons send SIGHUP then."""
    inputs, out, marks = kafka.topic("in"), kafka.topic("out"), tmp_path / "marks"
    marks.touch()
    kafka.send(inputs, [("x", "")])
    functions = StatefulFunctions()

    @functions.bind("t.fns/a", on_failure=OnFailure.SKIP, detach_after=timedelta(milliseconds=50))
    async def long(ctx: Context, _message: Message) -> None:
        with marks.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(marks.read_text().split()) <= MOST_LOST:
            await asyncio.sleep(600)
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value="well"))

    def end_workers() -> None:
        for count in range(MOST_LOST):
            wait(lambda: len(marks.read_text().split()) > count)  # noqa: B023 - it is called at once
            time.sleep(1)  # in a task, its end would end the query as well
            os.kill(int(marks.read_text().split()[-1]), signal.SIGHUP)

    with ThreadPoolExecutor() as threads:
        ending = threads.submit(end_workers)
        summary = run(
            kafka.module({inputs: ["t.fns/a"]}, value_type="t/bytes"),
            functions,
            checkpoint,
            shutdown_grace=timedelta(milliseconds=100),
        )
        ending.result()

    assert [record.key for record in kafka.receive(out)] == ["x"]
    assert summary.skipped == 0


def test_a_run_whose_query_cannot_be_made_listens_no_longer(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run of a long process that fails so early would else keep a port and a thread for workers' reports."""
    inputs = kafka.topic("in")

    def query(*_arguments: object) -> Query:
        raise OSError("no query")

    monkeypatch.setattr(application_run, "Query", query)

    with pytest.raises(OSError, match="no query"):
        run(
            kafka.module({inputs: ["t.fns/a"]}, value_type="t/bytes"),
            waiting_functions(inputs),
            checkpoint,
        )

    wait(lambda: "statefun call reports" not in {each.name for each in threading.enumerate()})


def test_calls_of_a_driver_that_is_killed_are_made_again(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """A bounded run waits until what was under way is called again, before what has waited for it."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/a"]}, value_type="t/bytes")
    kafka.send(inputs, [("x", "600000"), ("x", "1"), ("y", "2")])
    functions = waiting_functions(out)
    application = Application(
        parse_module(module),
        functions,
        Settings.resolve({}, None, checkpoint=checkpoint, shutdown_grace=timedelta(0)),
    )
    stopper = threading.Thread(target=stop_when, args=(application, kafka, out, 1))
    stopper.start()
    with pytest.raises(KeyboardInterrupt):
        application.run()
    stopper.join()

    # The next run has functions that wait for nothing.
    run(module, waiting_functions(out, factor=0), checkpoint)

    records = [(record.key, record.value) for record in kafka.receive(out)]
    assert [value for key, value in records if key == "x"] == ["1 600000", "2 1"]
    assert [value for key, value in records if key == "y"] == ["1 2"]


def stop_when(application: Application, kafka: KafkaHarness, topic: str, count: int) -> None:
    """Stop an application once there are so many records in a topic."""
    wait(lambda: len(kafka.receive(topic)) >= count)
    application.stop()


@attrs.frozen
class Neighbours(Marked):
    """A plain function that ends its worker while a harmless long call runs there."""

    done: str
    """The file that exists when the long call has ended."""
    out: str
    """The topic of the records."""

    def functions(self) -> StatefulFunctions:
        """Return the functions."""
        functions = StatefulFunctions()
        functions.register("t.fns/plain", self.plain)
        soon = timedelta(milliseconds=50)
        functions.register("t.fns/a", self.call, on_failure=OnFailure.SKIP, detach_after=soon)
        return functions

    def plain(self, ctx: Context, _message: Message) -> None:
        """End the worker if the long call runs in it, as often as a call may be lost."""
        if self.count() >= MOST_LOST or Path(self.done).exists():
            return
        if os.environ.get("CALLED"):
            with Path(self.marks).open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)
        other = "2" if ctx.address.id == "1" else "1"
        ctx.send(Message("t.fns/plain", other, TypedValue("t/bytes", b"")))

    async def call(self, ctx: Context, _message: Message) -> None:
        """Run until the other function has ended the worker so often that only a call alone may be the reason."""
        await asyncio.sleep(0.2)
        os.environ["CALLED"] = "yes"
        while self.count() < MOST_LOST - 1:  # noqa: ASYNC110 - another process sets no event
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        os.environ["CALLED"] = ""
        Path(self.done).touch()  # noqa: ASYNC240 - it takes no time
        ctx.send(KafkaEgressMessage("test/out", topic=self.out, key=ctx.address.id, value="well"))


@pytest.mark.long(minutes=0.6)
def test_a_call_does_not_fail_because_a_plain_function_ends_its_worker(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """The plain function is the reason each time; when the call runs alone, the function waits for its end."""
    inputs, ticks = kafka.topic("in"), kafka.topic("ticks")
    neighbours = Neighbours(str(tmp_path / "marks"), str(tmp_path / "done"), kafka.topic("out"))
    kafka.send(ticks, [(id_, "") for id_ in "12"])
    kafka.send(inputs, [("x", "harmless")])
    module = kafka.module({inputs: ["t.fns/a"], ticks: ["t.fns/plain"]}, value_type="t/bytes")

    summary = run(module, neighbours.functions(), checkpoint)

    assert neighbours.count() == MOST_LOST - 1
    assert summary.skipped == 0
    assert [record.key for record in kafka.receive(neighbours.out)] == ["x"]
