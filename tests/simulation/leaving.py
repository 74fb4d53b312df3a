# SPDX-License-Identifier: Apache-2.0
"""Worker processes with calls that leave their micro-batches, and their reports to the driver.

A call runs to its end at once, and its report waits in its process: so the call is under way until the
driver gets the report. The effects of a call are true once a committed micro-batch applies its result. A
call that was lost before has a further report, that it runs again: until the driver gets that one, the call
may as well wait for its place.

A process may also end in order, after a report that says so: then none of its calls is the reason.

The end of a process may end the query, as on one machine: then other processes end, too, and the driver closes its
register before it ends.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import attrs

from simulation.arrow_batches import Row
from simulation.functions import Actor, begin_journal
from simulation.world import PARTITIONS, Attempts, History, Journal, World, journals
from statefun import StringType
from statefun.engine.left_calls import LOST, MOST_LOST, RESULT
from statefun.protocol.runtime_pb2 import AddressState, CallLoss, CallReport, CallResult, Retry
from statefun.runtime.calls.call_register import CallRegister
from statefun.testing.leaving import ChoosingRunner

if TYPE_CHECKING:
    from statefun.engine.running_calls import RunningCall

_STRING = StringType.serializer()


@attrs.frozen
class LeftCall:
    """A call that has left its micro-batch."""

    actor: Actor
    """Who acted in the task that the call has left."""
    journal: Journal
    """The actions of the call."""


class Runner(ChoosingRunner):
    """Runs the calls of a process, and keeps a journal of each call apart from the journal of its task."""

    def __init__(self, world: World, worker: str) -> None:
        choose = world.calls
        super().__init__(
            lambda: choose.random() < world.leaves,
            lambda: choose.choice([None, 1, 1, 2, sys.maxsize]),
            lambda: choose.choice([False, False, True]),
        )
        self._world = world
        self.worker = worker
        self.actor: Actor | None = None
        """Who acts in the present task."""
        self.calls: dict[str, LeftCall] = {}
        """The calls that have left, by their names."""
        self.reports: deque[CallReport] = deque()
        """The reports that the driver does not have yet."""
        self._journals: dict[RunningCall, Journal] = {}

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:
        """Choose whether a call leaves; keep a journal of it."""
        assert self.actor is not None
        super().begin(running, name, detach_after)
        journal = begin_journal()
        if running.attempt:
            self.calls[running.attempt] = LeftCall(self.actor, journal)
        else:
            self._journals[running] = journal

    def end(self, running: RunningCall, messages: int) -> None:
        """Add the journal of a call that has not left to that of its task."""
        super().end(running, messages)
        journal = self._journals.pop(running, None)
        if journal is not None:
            assert self.actor is not None
            self.actor.journal.add(journal)

    def begin_again(self, running: RunningCall) -> None:
        """Report that a call that was lost before runs again."""
        super().begin_again(running)
        if running.attempt:
            self.reports.append(CallReport(attempt=running.attempt, begun=True))

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Keep a report; some calls end without a result."""
        if self._world.chaos.active and self._world.calls.random() < self._world.losses:
            result = None
        self.reports.append(CallReport(address=key, attempt=attempt, result=result or b""))


class QueryFailedError(Exception):
    """The query has ended because a process has."""


class Processes:
    """The worker processes of a driver, one for each state partition.

    Args:
        world: the world.
        history: the checkpoint of the driver.
        register: gets the reports.
    """

    def __init__(self, world: World, history: History, register: CallRegister) -> None:
        self._world = world
        self._losses = history.losses
        self._random = world.calls
        self._register = register
        self._calls: dict[str, LeftCall] = {}
        self._begun: set[str] = set()
        """The calls of which the driver knew that they ran again, by their names."""
        self._over: set[str] = set()
        """The calls about which the driver has a report that they have ended, by their names."""
        self._ended: list[str] = []
        """The processes that have been lost, one after the other."""
        self._in_order: set[str] = set()
        """The processes that have said that they end."""
        self._late: list[CallReport] = []
        """Reports that were on their way when a connection broke."""
        self._runners = [self._new_runner() for _ in range(PARTITIONS)]

    def _new_runner(self) -> Runner:
        runner = Runner(self._world, self._new_name())
        runner.calls = self._calls
        return runner

    def _new_name(self) -> str:
        name = f"w{self._world.chaos.number()}"
        self._register.connected(name)
        return name

    def runner(self, partition: int, actor: Actor) -> Runner:
        """Return the runner of the calls of a task."""
        runner = self._runners[partition]
        runner.actor = actor
        return runner

    def go_on(self) -> None:
        """Let some time pass: some reports come, and some processes are lost."""
        for runner in self._runners:
            while runner.reports and self._random.random() < self._world.speed:
                self._deliver(runner.reports.popleft())
        if self._world.chaos.active and self._random.random() < self._world.losses:
            self._lose(self._random.randrange(PARTITIONS))
        may_end = self._world.chaos.active and self._world.has_ends
        if may_end and self._world.ends.random() < self._world.losses / 3:
            self._end(self._world.ends.randrange(PARTITIONS))
        if self._late and self._random.random() < self._world.speed:
            self._report(self._late.pop())

    def deliver_all(self) -> bool:
        """Deliver all reports; return whether there were any."""
        were_there = False
        for runner in self._runners:
            while runner.reports:
                self._deliver(runner.reports.popleft())
                were_there = True
        return were_there

    def _deliver(self, report: CallReport) -> None:
        self._report(report)
        if self._random.random() < 0.1:
            self._late.append(report)  # the same once more

    def _report(self, report: CallReport) -> None:
        self._register.report(report.attempt.rpartition("-")[0], report, lambda: False)
        (self._begun if report.begun else self._over).add(report.attempt)

    def _lose(self, partition: int) -> None:
        """Lose a process, or its connection alone; perhaps, the query ends with it."""
        runner = self._runners[partition]
        late = [each for each in runner.reports if self._random.random() < 0.3]
        self._late += [each for each in late if not each.begun]
        self._register.disconnected(runner.worker)
        self._ended.append(runner.worker)
        if self._random.random() < 0.3:
            for other in self._runners:
                if other is not runner and self._random.random() < 0.5:
                    self._register.disconnected(other.worker)
            raise QueryFailedError
        if self._random.random() < 0.5:
            runner.reports.clear()
            runner.worker = self._new_name()
        else:
            self._runners[partition] = self._new_runner()

    def _end(self, partition: int) -> None:
        """Let a process end in order: some of its calls end before it does."""
        runner, choose = self._runners[partition], self._world.ends
        self._register.ends(runner.worker)
        self._in_order.add(runner.worker)
        while runner.reports and choose.random() < 0.5:
            self._report(runner.reports.popleft())
        self._register.disconnected(runner.worker)
        self._runners[partition] = self._new_runner()

    def close(self) -> None:
        """Close the register, as the query has failed: the next run has to know which calls were lost."""
        self._losses.possible.update(self._ended)
        self._register.close(has_failed=True)
        if len(self._ended) == 1:  # else it is the losses of an earlier process that are kept
            [worker] = self._ended
            names = [each for each in self._calls if each.startswith(f"{worker}-")]
            self._losses.certain |= {
                name: name in self._begun for name in names if name not in self._over
            }

    def settled(
        self,
        rows: Iterable[Row],
        state: Mapping[bytes, bytes],
        actor: Actor,
        attempts: Attempts,
    ) -> Journal:
        """Return the actions that come true with the reports that a task gets.

        Args:
            rows: the rows of the task.
            state: the stored state of each address.
            actor: who acts in the task.
            attempts: the micro-batches that were committed before.
        """
        journal, over = Journal(), set()
        for row in rows:
            if row.typename not in {RESULT, LOST} or row.target in over:
                continue
            stored = AddressState.FromString(state.get(row.target, b""))
            call = stored.under_way
            if call.attempt != _attempt_of(row):
                continue
            over.add(row.target)
            if row.typename == RESULT:
                left = self._calls[call.attempt]
                journal.add(actor.applied(left.actor, left.journal))
                continue
            uid = _uid_of(call.messages[0])
            before = sum(each.lost.count(uid) for _, each in journals(attempts))
            if self._has_ended_in_order(call.attempt):
                counts = False
                if CallLoss.FromString(row.value).ended:
                    self._world.wrong = (
                        f"call {call.attempt} is blamed, whose process has ended in order"
                    )
            elif call.attempt in self._calls:
                counts = not before or call.attempt in self._begun
            else:
                counts = self._counts(CallLoss.FromString(row.value), before)
            if not counts:
                continue  # the call may have waited for its place, or its run has ended
            journal.lost.append(uid)
            if before + 1 == MOST_LOST and not row.target.endswith(b"/far"):
                journal.failed.append(uid)
        return journal

    def _has_ended_in_order(self, attempt: str) -> bool:
        """Return whether a call was lost with a process that has ended in order, and not before that."""
        return attempt.rpartition("-")[0] in self._in_order and attempt not in self._over

    def _counts(self, loss: CallLoss, before: int) -> bool:
        """Return whether a loss in an earlier run counts, and check what is said about it."""
        name = loss.attempt
        if loss.ended and name.rpartition("-")[0] not in self._losses.possible:
            self._world.wrong = f"call {name} is blamed, whose process has not ended the query"
        has_begun = self._losses.certain.get(name)
        if has_begun is not None and (loss.ended, loss.begun) != (True, has_begun):
            self._world.wrong = f"the loss of call {name} in an earlier run is forgotten"
        return loss.ended and (loss.begun or not before)


def _attempt_of(row: Row) -> str:
    if row.typename == RESULT:
        return CallResult.FromString(row.value).attempt
    return CallLoss.FromString(row.value).attempt


def _uid_of(message: bytes) -> str:
    return _STRING.deserialize(Retry.FromString(message).value).split()[0]
