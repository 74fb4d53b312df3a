# SPDX-License-Identifier: Apache-2.0
"""The driver's register of calls that go on after their micro-batch has ended, and the inbox of results.

The results are only in memory. If the driver ends before a micro-batch has read them, their calls are lost. The
next run finds all such calls in the checkpoint's log of calls, and reports them to their addresses as lost. If the run
has failed because a worker has ended, the log says which calls were lost with that worker: one of them may be the reason.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import attrs

from statefun.engine.left_calls import LOST, RESULT
from statefun.protocol.runtime_pb2 import CallLoss, CallReport, Outcome
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.inbox import AcceptedMessage

logger = logging.getLogger("statefun")

CALLS_INBOX = "calls"
"""The name of the inbox of calls' results in the offset of the feedback source."""
_MOST_BYTES = 64 * 1024 * 1024
"""The largest size of the results that wait for a micro-batch, in bytes; above it, workers' reports wait."""
_BATCH_BYTES = 8 * 1024 * 1024
"""The largest size of the results that one micro-batch reads, in bytes; a larger result is read alone."""
_MOST_CUT_OFF = 1000
"""The largest number of workers whose network has failed that the register remembers."""
_LOOK = 0.05
"""The time, in seconds, between two checks whether a worker whose report waits has ended."""
_ENDS_IN_ORDER = 4
"""How many orderly ends of workers during an address's calls count as one end that a call may have caused.

A worker cannot know why its executor ends: Spark may want fewer executors, or a call may have taken all memory, for which
the system has killed the executor."""


@attrs.frozen
class _Detached:
    """A call that goes on after its micro-batch has ended."""

    worker: str
    since: float
    """When the micro-batch was staged, in seconds of the monotonic clock."""
    server: str
    """The server of the called endpoint; empty for a function of the worker."""


class CallRegister:
    """The calls that go on after their micro-batches have ended, and results that no micro-batch has read.

    Calls that earlier runs have left unfinished are lost: the first micro-batch that reads the inbox makes them
    again.

    Args:
        log: keeps the calls in the checkpoint, so that later runs know about them.
        last: the number of the last message that earlier runs have planned to read from the inbox.
    """

    is_durable = False

    def __init__(self, log: CallLog, last: int = 0) -> None:
        self._log = log
        self._changed = threading.Condition()
        self._number = last
        self._under_way = dict(log.recover())
        """The addresses of the calls that go on, or whose results no committed micro-batch has read yet; by name."""
        self._detached: dict[str, _Detached] = {}
        """The calls that go on, by their names."""
        self._early: dict[str, CallReport] = {}
        """Reports about calls whose micro-batch is not staged yet, by the names of the calls."""
        self._begun: set[str] = set()
        """The names of calls that were lost before, and of which workers have reported that they run now."""
        self._asked: dict[str, tuple[str, Callable[[bool], None]]] = {}
        """The worker of each call that waits until the micro-batch it has left is staged, and what gets the answer."""
        self._ends: dict[str, dict[str, CallLoss]] = {}
        """The losses of calls, by worker, for workers that have ended since the newest micro-batch was staged.

        The worker that has ended first comes first. It has no losses while one of its reports waits."""
        self._survived: dict[str, CallLoss] = {}
        """The losses of calls of workers that had ended before: the query went on after that."""
        self._workers: set[str] = set()
        """The names of the workers that are connected."""
        self._in_order: set[str] = set()
        """The workers with an orderly end that end now, or have ended since the newest micro-batch was staged."""
        self._cut_off: deque[str] = deque(maxlen=_MOST_CUT_OFF)
        """The names of the last workers whose network has failed: they may go on, and not notice it for a while."""
        self._ended_before: set[str] = set()
        """The names of workers that had ended before the newest micro-batch was staged, and whose reports wait since."""
        self._ends_in_order: Counter[bytes] = Counter()
        """How many orderly ends of workers have interrupted calls of an address since one has ended; by address."""
        self._messages: dict[int, AcceptedMessage] = {}
        self._names: dict[int, str] = {}
        """The names of the calls that have ended, by the numbers of the messages with their results."""
        self._bytes = 0
        """The total size of the messages with results, and of the early reports, in bytes."""
        self._is_over = False
        """Whether reports do not wait any more, as no further micro-batch reads them."""
        self._is_closed = False
        for name in self._under_way:
            self._lose(log.losses.get(name, CallLoss(attempt=name)))
        if self._messages:
            logger.info(
                "at most %d calls of earlier runs are unfinished; these are made again",
                len(self._messages),
            )

    def connected(self, worker: str) -> None:
        """Add a worker that is connected, and so can report."""
        with self._changed:
            self._workers.add(worker)

    def ends(self, worker: str) -> None:
        """Record that a worker was ordered to end, which is an orderly end: probably no call has caused it."""
        with self._changed:
            self._in_order.add(worker)

    def disconnected(self, worker: str, *, has_ended: bool = True) -> None:
        """Report the calls of a worker to their addresses as lost, so that they are made again.

        Args:
            worker: the name of the worker.
            has_ended: whether the worker has ended; False if perhaps only the network has failed, which no call can
                have caused.
        """
        with self._changed:
            self._workers.discard(worker)
            if not has_ended:
                self._cut_off.append(worker)
            self._asked = {name: asked for name, asked in self._asked.items() if asked[0] != worker}
            lost = [name for name, call in self._detached.items() if call.worker == worker]
            losses = {name: self._loss_with(worker, name, has_ended=has_ended) for name in lost}
            for loss in losses.values():
                self._lose(loss)
            if self._is_closed:
                return
            if not has_ended or worker in self._in_order:
                self._ends.pop(worker, None)
            elif worker in self._ended_before:  # the query went on after that
                self._survived |= losses
            else:
                self._ends[worker] = losses
            self._ended_before.discard(worker)

    def report(self, worker: str, report: CallReport, has_ended: Callable[[], bool]) -> None:
        """Accept a worker's report about a call; wait first while too many results wait for a micro-batch.

        A report is ignored if the worker has made the call under another name, over a former connection: such calls
        are lost.

        Args:
            worker: the name of the worker.
            report: the report.
            has_ended: returns whether the worker has ended. It is called while the report waits, so that the register
                knows which worker has ended first.
        """
        with self._changed:
            if report.begun:
                self._begun.add(report.attempt)
            elif report.accompanied:
                self._begun.discard(report.attempt)
            if report.begun or report.accompanied:
                return
            while not self._changed.wait_for(self._has_room, _LOOK):
                if worker not in self._ended_before and has_ended():
                    self._ends.setdefault(worker, {})
            if report.attempt in self._detached:
                self._answer(report)
            elif report.attempt.startswith(f"{worker}-"):
                former = self._early.get(report.attempt, CallReport())
                self._bytes += len(report.result) - len(former.result)
                self._early[report.attempt] = report

    def ask(self, worker: str, attempt: str, answer: Callable[[bool], None]) -> None:
        """Answer whether a call has left a micro-batch that is staged, as soon as that is known.

        Args:
            worker: the name of the worker that asks.
            attempt: the name of the call.
            answer: is called once, maybe in another thread, unless the worker is disconnected or the run ends before.
        """
        with self._changed:
            if attempt in self._detached:
                answer(True)
            else:
                self._asked[attempt] = worker, answer

    def staged(self, batch: int, outcomes: Iterable[Outcome]) -> None:
        """Register the calls that go on after a micro-batch, once the micro-batch is staged and before its commit."""
        calls = [call for outcome in outcomes for call in outcome.detached]
        with self._changed:
            now, early = time.monotonic(), self._early
            # Others are of attempts of the same micro-batch's tasks that do not count.
            self._early = {}
            self._bytes -= sum(len(report.result) for report in early.values())
            if calls:
                addresses = {call.attempt: call.address for call in calls}
                self._under_way |= addresses
                self._log.add(batch, addresses, self._under_way)
            for call in calls:
                self._detached[call.attempt] = _Detached(call.worker, now, call.server)
                if call.attempt in early:
                    self._answer(early[call.attempt])
                elif call.worker not in self._workers:
                    has_ended = call.worker not in self._cut_off
                    self._lose(self._loss_with(call.worker, call.attempt, has_ended=has_ended))
            self._in_order &= self._workers
            self._begun &= self._detached.keys()
            survived = [self._survived, *self._ends.values()]
            self._survived = {
                name: loss
                for losses in survived
                for name, loss in losses.items()
                if name in self._under_way
            }
            self._ended_before |= self._ends.keys() & self._workers
            self._ends = {}
            self._changed.notify_all()
            asked, self._asked = self._asked, {}
            for name, (_, answer) in asked.items():
                answer(name in self._detached)

    def end_waiting(self) -> None:
        """Let no report wait any more, however many there are: the run is over, and nobody reads them."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self, *, has_failed: bool = False) -> None:
        """End the register with the run, after :meth:`end_waiting`.

        Args:
            has_failed: whether Spark has ended the query by itself, perhaps because a worker has ended during a
                task. Then the log keeps this run's losses for the next run, as a lost call may be the reason. Of the
                workers that have ended since the newest micro-batch was staged, only the first one counts: the others
                may have ended because the query did.
        """
        with self._changed:
            self._is_closed = True
            if not self._under_way:
                self._log.clear()
            elif has_failed:
                losses = self._survived | next(iter(self._ends.values()), {})
                if losses:
                    self._log.lose(losses, self._under_way)

    def names(self) -> set[str]:
        """Return the names of the calls that go on, or whose results no micro-batch has read yet."""
        with self._changed:
            return set(self._under_way)

    def is_pending(self) -> bool:
        """Return whether any call goes on, or has a result that no micro-batch has read yet.

        Unfinished calls of earlier runs count until a micro-batch has read that they are lost.
        """
        with self._changed:
            return bool(self._under_way)

    def servers(self) -> set[str]:
        """Return the servers of endpoints at which calls go on; see :class:`~statefun.sdk.invocation_batch.Turn`."""
        with self._changed:
            return {call.server for call in self._detached.values()}

    @property
    def count(self) -> int:
        """The number of calls that go on after their micro-batches have ended."""
        with self._changed:
            return len(self._detached)

    @property
    def oldest(self) -> timedelta:
        """How long the oldest call has gone on after its micro-batch; zero if no call goes on."""
        with self._changed:
            first = min((call.since for call in self._detached.values()), default=None)
        return timedelta(seconds=0 if first is None else time.monotonic() - first)

    # The inbox of the feedback source

    def open(self) -> None:
        """Do nothing: results may come at any time."""

    def readable(self, after: int, *, is_busy: bool) -> int:  # noqa: ARG002 - as the protocol has it
        """Return the number of the last result that the next micro-batch reads.

        Args:
            after: the number of the last result that earlier micro-batches have read.
            is_busy: not used, as results do not wait for other messages.
        """
        with self._changed:
            last, size = after, 0
            while (message := self._messages.get(last + 1)) is not None:
                size += len(message.value)
                if last > after and size > _BATCH_BYTES:
                    break
                last += 1
            return last

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the results with numbers ``after + 1`` to ``last``, except results of earlier runs, which are lost."""
        with self._changed:
            numbers = range(after + 1, last + 1)
            return [self._messages[number] for number in numbers if number in self._messages]

    def forget(self, last: int) -> None:
        """Delete the results up to number ``last``, since micro-batches have read them."""
        with self._changed:
            numbers = [number for number in self._messages if number <= last]
            read = [self._messages.pop(number) for number in numbers]
            for message in read:
                self._bytes -= len(message.value)
                self._under_way.pop(self._names.pop(message.number), None)
            # A micro-batch that reads of a loss makes the call again. Unless it has left once more, it has ended.
            interrupted = self._ends_in_order.keys() & {message.target for message in read}
            if interrupted:
                for address in interrupted.difference(self._under_way.values()):
                    del self._ends_in_order[address]
            self._changed.notify_all()

    def _has_room(self) -> bool:
        # Without a message, no micro-batch may be planned, and early reports leave with a staged one only.
        return self._bytes < _MOST_BYTES or not self._messages or self._is_over

    def _answer(self, report: CallReport) -> None:
        if report.result:
            self._ends_in_order.pop(self._under_way[report.attempt], None)
            self._add(report.attempt, RESULT, report.result)
        else:
            self._lose(self._loss(report.attempt, has_ended=True))

    def _loss(self, name: str, *, has_ended: bool) -> CallLoss:
        return CallLoss(attempt=name, begun=has_ended and name in self._begun, ended=has_ended)

    def _loss_with(self, worker: str, name: str, *, has_ended: bool) -> CallLoss:
        """Return the loss of a call whose worker has ended or cannot be reached."""
        if has_ended and worker in self._in_order:
            has_ended = not self._is_excused(name)
        return self._loss(name, has_ended=has_ended)

    def _is_excused(self, name: str) -> bool:
        """Count a worker's orderly end during a call; return False if the call may have caused the end after all.

        That is assumed of every fourth such end during calls of one address.
        """
        address = self._under_way[name]
        self._ends_in_order[address] += 1
        return self._ends_in_order[address] % _ENDS_IN_ORDER != 0

    def _lose(self, loss: CallLoss) -> None:
        self._add(loss.attempt, LOST, loss.SerializeToString())

    def _add(self, name: str, typename: str, value: bytes) -> None:
        self._detached.pop(name, None)  # a call of an earlier run is not there
        self._begun.discard(name)
        self._number += 1
        message = AcceptedMessage(self._number, self._under_way[name], typename, value)
        self._messages[self._number], self._names[self._number] = message, name
        self._bytes += len(value)
