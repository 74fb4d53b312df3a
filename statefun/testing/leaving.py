# SPDX-License-Identifier: Apache-2.0
"""Runs the calls of tests; chosen calls leave their micro-batch, as long calls do on Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import NamedTuple, TypeVar

import attrs

from statefun.engine.call_limits import CallLimits
from statefun.engine.running_calls import Begin, Left, RunningCall
from statefun.sdk.event_loop import await_all
from statefun.sdk.invocation_batch import IsOver
from statefun.sdk.stateful_function import StatefulFunction

T = TypeVar("T")


class Report(NamedTuple):
    """The result of a call that has left its micro-batch."""

    key: bytes
    """The called address, encoded."""
    attempt: str
    """The name of the call."""
    result: bytes | None
    """The encoded result; None if the call has ended without a result and must be made again."""


class ChoosingRunner:
    """Runs each call at once; chosen calls leave their micro-batch, and their results come in a later one.

    Args:
        leaves: decides whether a call leaves its micro-batch.
        most: returns how many messages the next call handles at most; None if no call was measured yet.
        is_short: decides whether a call reaches its time limit after its first message.
    """

    worker: str = "test"

    def __init__(
        self,
        leaves: Callable[[], bool],
        most: Callable[[], int | None],
        is_short: Callable[[], bool],
    ) -> None:
        self._leaves = leaves
        self._most = most
        self._is_short = is_short
        self._numbers = count(1)
        self._limits = CallLimits()
        self._left: dict[RunningCall, Left] = {}
        self._reports: list[Report] = []

    def run(self, calls: Sequence[Begin[T]], limit: int) -> list[T | BaseException | Left]:
        """Run each call to its end; return its result, its exception, or a ``Left`` if the call has left.

        Args:
            calls: functions that begin the calls.
            limit: the largest number of calls that run at a time.
        """
        running = [RunningCall() for _ in calls]
        begun = [begin(own) for begin, own in zip(calls, running, strict=True)]
        outcomes: list[T | BaseException | Left] = [*await_all(begun, limit)]
        for index, own in enumerate(running):
            if own in self._left:
                outcomes[index] = self._left.pop(own)
        return outcomes

    def most(self, name: str) -> int | None:  # noqa: ARG002 - it is chosen for each call
        """Return how many messages the next call handles at most; None if no call was measured yet."""
        return self._most()

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:  # noqa: ARG002 - no time passes
        """Choose whether a call leaves its micro-batch."""
        if self._leaves():
            self._left[running] = running.leave(f"{self.worker}-{next(self._numbers)}", self.worker)

    def started(self, running: RunningCall) -> IsOver | None:  # noqa: ARG002 - no time passes
        """Choose whether the next call reaches its time limit after its first message.

        Returns:
            A function that returns whether the limit is reached; None if the call has no time limit.
        """
        return (lambda: True) if self._is_short() else None

    def end(self, running: RunningCall, messages: int) -> None:
        """Do nothing: this runner does not measure how long calls take."""

    @asynccontextmanager
    async def place(self, function: StatefulFunction, running: RunningCall) -> AsyncIterator[None]:
        """Wait until one more call of a function may run; no time passes, so its rate is not limited."""
        # An endpoint is called for real, as fast as its service allows.
        if function.transport is None and function.rate_limit is not None:
            function = attrs.evolve(function, rate_limit=None)
        async with self._limits.place(function, is_alone=running.is_alone):
            if running.losses:
                self.begin_again(running)
            yield

    def plain_calls(self) -> AbstractContextManager[None]:
        """Return a context manager for plain calls; see :meth:`CallRunner.plain_calls`."""
        return self._limits.plain_calls()

    def begin_again(self, running: RunningCall) -> None:
        """Do nothing when a lost call runs again: in these tests, every lost call counts as begun anyway."""

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Keep the result of a call that has left its micro-batch until :meth:`take` returns it."""
        self._reports.append(Report(key, attempt, result))

    def take(self) -> list[Report]:
        """Return the results that were reported since this method was called last."""
        reports, self._reports = self._reports, []
        return reports
