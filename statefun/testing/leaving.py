# SPDX-License-Identifier: Apache-2.0
"""Calls that leave their micro-batches under test: whether one leaves is chosen, and takes no time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from itertools import count
from typing import NamedTuple, TypeVar

from statefun.engine.call_limits import CallLimits
from statefun.engine.running_calls import Begin, Left, RunningCall
from statefun.sdk.event_loop import await_all
from statefun.sdk.invocation_batch import IsOver
from statefun.sdk.stateful_function import StatefulFunction

T = TypeVar("T")


class Report(NamedTuple):
    """What a call that has left has come to."""

    key: bytes
    """The key of the called address."""
    attempt: str
    """Names the call."""
    result: bytes | None
    """The encoded result, if there is one."""


class ChoosingRunner:
    """Runs calls to their ends, and lets chosen ones leave nevertheless: their results come later.

    Args:
        leaves: decides whether a call leaves.
        most: returns how many messages a call takes.
        is_short: decides whether a call leaves all messages but its first to another one.
    """

    worker: str = "test"

    def __init__(
        self,
        leaves: Callable[[], bool],
        most: Callable[[], int],
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
        """Run calls to their ends; return what became of those that have not left."""
        running = [RunningCall() for _ in calls]
        begun = [begin(own) for begin, own in zip(calls, running, strict=True)]
        outcomes: list[T | BaseException | Left] = [*await_all(begun, limit)]
        for index, own in enumerate(running):
            if own in self._left:
                outcomes[index] = self._left.pop(own)
        return outcomes

    def most(self, name: str) -> int | None:  # noqa: ARG002 - it is chosen for each call
        """Return how many messages the next call takes."""
        return self._most()

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:  # noqa: ARG002 - no time passes
        """Choose whether a call leaves."""
        if self._leaves():
            self._left[running] = running.leave(f"{self.worker}-{next(self._numbers)}")

    def end_of_time(self) -> IsOver | None:
        """Choose whether a call is over after its first message."""
        return (lambda: True) if self._is_short() else None

    def end(self, running: RunningCall, messages: int) -> None:
        """Do nothing: no time has passed."""

    def place(self, function: StatefulFunction) -> AbstractAsyncContextManager[None]:
        """Wait until one more call of a function may be made."""
        return self._limits.place(function)

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Keep a report."""
        self._reports.append(Report(key, attempt, result))

    def take(self) -> list[Report]:
        """Return the reports since this method was called last."""
        reports, self._reports = self._reports, []
        return reports
