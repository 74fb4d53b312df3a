# SPDX-License-Identifier: Apache-2.0
"""Spark's steps of a streaming query: it plans, runs and commits micro-batches, one by one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple, cast

import attrs
from pyspark import TaskContext

from simulation.arrow_batches import Row, arrow_batches
from simulation.clocks import WorkerClock
from simulation.elsewhere import ENDLESS, Server, Worker
from simulation.expiring import look_at_wake_ups
from simulation.functions import FUEL, Actor, acting, changed_functions, functions
from simulation.leaving import Processes
from simulation.publishing import EndlessError
from simulation.side_by_side import SideBySide
from simulation.waiting import look_at_waiting
from simulation.world import AT_LEAST_ONCE, EXACTLY_ONCE, PARTITIONS, Attempt, History, World
from statefun import StatefulFunctions, StringType
from statefun.engine.program import Program
from statefun.engine.sinks import Sink
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.calls.call_register import CALLS_INBOX, CallRegister
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.dispatch.evaluation import Evaluation
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_tasks import read_feedback_task
from statefun.sdk.errors import CheckpointError

Offset = dict[str, int]
_STRING = StringType.serializer()


class Result(NamedTuple):
    """A row of a job's result."""

    outcome: bytes


@attrs.define
class Frame:
    """The DataFrame of a micro-batch, and the session and context that it names."""

    tasks: Callable[[Mapping[str, str]], list[bytes]]
    properties: dict[str, str]

    @property
    def sparkSession(self) -> Frame:  # noqa: N802 - Spark's
        """The session."""
        return self

    @property
    def sparkContext(self) -> Frame:  # noqa: N802 - Spark's
        """The context."""
        return self

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's
        """Tell the tasks of the next job something."""
        self.properties[name] = value

    def collect(self) -> list[Result]:
        """Run the job."""
        return [Result(outcome) for outcome in self.tasks(self.properties)]


class Engine:
    """The JVM of a driver, and the workers that it starts."""

    def __init__(
        self, world: World, history: History, immediate: int, register: CallRegister
    ) -> None:
        self._world = world
        self._chaos = world.chaos
        self._history = history
        self._checkpoint = history.folder(world.chaos)
        self._log = CommitLog(self._checkpoint)
        self._immediate = immediate
        self.holds_reading: Callable[[], bool] = lambda: False
        """Whether the program lets the next micro-batch read no records."""
        self._server = CallServerAddress("nowhere", 0, b"")
        self._processes = Processes(world, history, register) if world.has_calls else None
        inboxes = {CALLS_INBOX: register}
        self._reader = FeedbackReader(self._checkpoint, world.chaos.clock, inboxes)
        if not self._log.query_id():
            self._write("metadata", json.dumps({"id": f"query-{world.chaos.number()}"}))
        self._planned = self._log.planned()
        self._next = max(self._log.newest() + 1, self._planned)
        self._staged: Attempt | None = None
        self._tasks = SideBySide(world.chaos.clock)
        is_changed = world.has_changes and world.changes.random() < 0.5
        self._functions = changed_functions if is_changed else functions
        if world.has_endpoint and history.server is None:
            history.server = Server(world.chaos)
        self._workers = [self._new_worker() for _ in range(PARTITIONS)]

    def _new_worker(self) -> Worker | None:
        server = self._history.server
        return None if server is None else Worker(server, self._functions)

    @property
    def functions(self) -> StatefulFunctions:
        """The functions of the run, also the one that is elsewhere."""
        [worker, *_] = self._workers
        return self._functions if worker is None else worker.functions

    def plan(self) -> int | None:
        """Plan the next micro-batch, if there is anything for it."""
        self._go_on()
        batch = self._plan()
        if batch is None and not (self._chaos.active and self._world.calls.random() < 0.5):
            return self._plan() if self.deliver_reports() else None
        return batch

    def deliver_reports(self) -> bool:
        """Deliver all reports about calls; return whether there were any."""
        return self._processes is not None and self._processes.deliver_all()

    def close(self) -> None:
        """Close the driver's register of calls, after a process has ended the query."""
        if self._processes is not None:
            self._processes.close()

    def _go_on(self) -> None:
        if self._processes is not None:
            self._processes.go_on()

    def _plan(self) -> int | None:
        batch = self._next
        if batch > self._planned:
            read, start = self._ends(batch - 1)
            most = self._chaos.random.randrange(0 if self._chaos.active else 1, 3)
            if self.holds_reading():
                most = 0
            ingress = min(read + most, len(self._world.records))
            feedback = self._reader.latest_offset(start)
            if (ingress, feedback) == (read, start):
                return None
            lines = ["v1", "{}", json.dumps({"in": {"0": ingress}}), json.dumps(feedback)]
            self._write(f"offsets/{batch}", "\n".join(lines))
            self._planned = batch
        return batch

    def run(self, batch: int, stage: Callable[[Frame, int], None]) -> None:
        """Run a micro-batch, and commit it."""
        (read, start), (ingress, feedback) = self._ends(batch - 1), self._ends(batch)
        rows = [*self._records(read, ingress), *self._messages(start, feedback)]
        before = self._history.attempts.get(batch - 1)
        attempt = Attempt(batch, dict(before.state if before else {}))
        look_at_wake_ups(self._world, attempt, rows)
        if self._world.has_coroutines:
            reads = ingress > read
            look_at_waiting(self._world, self._checkpoint, attempt, rows, reads=reads)
        self._chaos.step()
        stage(Frame(lambda told: self._run_tasks(attempt, rows, told), {}), batch)
        self._staged = attempt
        self._go_on()
        for _ in range(5):  # a good moment for a crash
            self._chaos.step()
        self.commit()

    def commit(self) -> None:
        """Commit the micro-batch that is staged."""
        attempt, self._staged = self._staged, None
        assert attempt is not None
        self._staged = attempt
        self._write(f"commits/{attempt.batch}", "v1\n{}", attempt)
        self._staged = None
        self._next += 1
        if self._chaos.random.random() < 0.3:
            self._history.disk.sync_all()

    def thaw(self) -> None:
        """Go on for a moment, without the program."""
        if self._staged is not None:
            self.commit()
            if self._chaos.random.random() < 0.5:
                self.plan()

    def _ends(self, batch: int) -> tuple[int, Offset]:
        if batch < 0:
            return 0, self._reader.initial_offset()
        *ingress, feedback = self._log.end_offsets(batch)
        return int((ingress[0] or {})["in"]["0"]), cast("Offset", feedback)

    def _write(self, path: str, text: str, attempt: Attempt | None = None) -> None:
        """Write a file of the logs, which must not be there; what it commits is true then."""
        self._chaos.step()
        disk, path = self._history.disk, f"/c/{path}"
        if path in disk.files:
            raise CheckpointError(f"CONCURRENT_STREAM_LOG_UPDATE: {path}")
        disk.create(path, text.encode())
        if attempt is not None:
            self._history.attempts[attempt.batch] = attempt
        self._chaos.step()

    def _records(self, first: int, end: int) -> Iterator[Row]:
        for offset in range(first, end):
            value = bytes(_STRING.serialize(f"{self._world.names[offset]} {FUEL}"))
            yield Row(self._world.records[offset], offset, None, StringType.typename, value)

    def _messages(self, start: Offset, end: Offset) -> Iterator[Row]:
        outbox = Outbox(self._checkpoint)
        for task in self._reader.tasks(start, end):
            for batch in read_feedback_task(outbox, task):
                columns = (batch.column(name).to_pylist() for name in Row._fields)
                yield from map(Row, *columns)

    def _run_tasks(
        self, attempt: Attempt, rows: Sequence[Row], told: Mapping[str, str]
    ) -> list[bytes]:
        outcomes: list[bytes] = []
        state = dict(attempt.state)

        def run(partition: int) -> None:
            own = [row for row in rows if zlib.crc32(row.target) % PARTITIONS == partition]
            if own:
                self._chaos.random.shuffle(own)  # as shuffles do
                own.sort(key=lambda row: row.place)
                if self._chaos.happens(0.05):  # an attempt whose results are lost
                    self._run_task(attempt.batch, partition, own, state, told)
                actor, changes, results = self._run_task(attempt.batch, partition, own, state, told)
                attempt.journals[partition] = actor.journal
                for key, value in changes.items():
                    if value is None:
                        attempt.state.pop(key, None)
                    else:
                        attempt.state[key] = value
                outcomes.extend(results)
            self._chaos.step()

        server = self._history.server
        if server is not None:
            server.turn, server.is_turn_broken = _turn(told), False
        self._tasks.run(partial(run, partition) for partition in range(PARTITIONS))
        self._go_on()
        if self._world.has_coroutines:
            attempt.failed = sum(Outcome.FromString(each).skipped for each in outcomes)
        if server is not None:
            self._look_at(server, attempt.batch)
        return outcomes

    def _look_at(self, server: Server, batch: int) -> None:
        if server.poisoned > ENDLESS:
            raise EndlessError("a server is taken down again and again")
        if server.is_turn_broken:
            self._world.wrong = f"batch {batch} was no turn of {server.turn} alone"

    def _run_task(
        self,
        batch: int,
        partition: int,
        rows: Sequence[Row],
        state: Mapping[bytes, bytes],
        told: Mapping[str, str],
    ) -> tuple[Actor, dict[bytes, bytes | None], list[bytes]]:
        chaos = self._chaos
        begun = int(told["statefun.time"])
        clock = WorkerClock.beside(begun, chaos.random)
        actor = Actor(
            chaos,
            self._history.attempts,
            batch=batch,
            partition=partition,
            begun=begun,
            worker_time=clock.time,
            has_endpoint=self._world.has_endpoint,
            has_calls=self._world.has_calls,
            has_changes=self._world.has_changes,
            expiry=self._world.expiry if self._world.has_expiry else None,
            poisonous=self._world.poisonous,
        )
        operator = Operator(
            self._payload(partition, actor),
            SegmentWriter(self._checkpoint),
            concurrency=10,
            immediate=self._immediate,
            clock=clock,
            arrow=True,
            calls=self._server,
        )
        runner = None
        if self._processes is not None:
            settled = self._processes.settled(rows, state, actor, self._history.attempts)
            actor.journal.add(settled)
            runner = self._processes.runner(partition, actor)
        properties = {**told, "streaming.sql.batchId": str(batch)}
        changes: dict[bytes, bytes | None] = {}
        with as_task(partition, chaos.number(), properties), acting(actor):
            evaluation = Evaluation(operator, runner)
            for groups in arrow_batches(rows, state, self._world.batch_rows):
                for group in evaluation.dispatch(groups):
                    if group.values.changed:
                        changes[group.key] = group.values.encoded()
            results = evaluation.finish()
        return actor, changes, results

    def _payload(self, partition: int, actor: Actor) -> Payload:
        """Return the program, as a process has loaded it that may be a new one."""
        if self._history.server is not None and self._chaos.happens(0.1):
            self._workers[partition] = self._new_worker()
        worker = self._workers[partition]
        if worker is None:
            return _payload(self._functions)
        worker.actor = actor
        program = Program(worker.functions, _egresses())
        return cast("Payload", SimpleNamespace(load=lambda: program))


def _turn(told: Mapping[str, str]) -> str | None:
    """Return the id of the address whose turn a micro-batch is, if it is the turn of one; empty if all wait."""
    text = told["statefun.turn"]
    if text == "nothing":
        return None
    (_, _, id_, _), _, _, waits = json.loads(text)
    return "" if waits else str(id_)


@cache
def _payload(functions: StatefulFunctions) -> Payload:
    return Payload.of(Program(functions, _egresses()))


@cache
def _egresses() -> Mapping[str, Sink]:
    return {name: Sink.for_kafka() for name in (*EXACTLY_ONCE, AT_LEAST_ONCE)}


@contextmanager
def as_task(partition: int, attempt: int, properties: dict[str, str]) -> Iterator[None]:
    """Be a task, to those who ask."""
    before = TaskContext.get()
    context = object.__new__(TaskContext)
    context._partitionId, context._taskAttemptId = partition, attempt
    context._localProperties = properties
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(cast("TaskContext", before))
