# SPDX-License-Identifier: Apache-2.0
"""Calls of coroutine functions that run side by side, and that may leave their micro-batch.

A call that leaves goes on, while its micro-batch is committed. What it comes to is reported later,
and is a message to the called address.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from statefun.engine.call_limits import CallLimits
from statefun.engine.calls import Call
from statefun.sdk.event_loop import await_all
from statefun.sdk.invocation_batch import InvocationBatch, IsOver
from statefun.sdk.message import FindRecord
from statefun.sdk.record import IngressRecord
from statefun.sdk.stateful_function import StatefulFunction

T = TypeVar("T")


class Left:
    """Stands for the outcome of a call that has left its micro-batch."""

    __slots__ = ("attempt", "call")

    def __init__(self, attempt: str, call: Call) -> None:
        self.attempt = attempt
        """Names the call, whose result is reported under it."""
        self.call = call


class KeptRecords:
    """Finds the ingress records of a call's messages, also when the rows that they came in are gone."""

    __slots__ = ("_count", "_find", "_kept")

    def __init__(self, find: FindRecord, count: int) -> None:
        self._find: FindRecord | None = find
        self._count = count
        self._kept: list[IngressRecord | None] = []

    def __call__(self, index: int) -> IngressRecord | None:
        """Return the record of a message, by its number."""
        return self._kept[index] if self._find is None else self._find(index)

    def keep(self) -> None:
        """Keep the records themselves: an Arrow batch would stay as long as one of its calls."""
        self._kept, self._find = [self(index) for index in range(self._count)], None


class RunningCall:
    """A call that runs."""

    __slots__ = ("_call", "_records", "attempt", "begun", "detach_after", "name", "patience")

    def __init__(self) -> None:
        self.attempt = ""
        """The name of a call that has left its micro-batch; empty before."""
        self.begun: int | None = None
        """When the function was called, in ticks of the runner; None before that."""
        self.name = ""
        """The name of the function."""
        self.detach_after = timedelta(0)
        """How long micro-batches wait for calls of the function, unless these mostly leave."""
        self.patience = timedelta(0)
        """How long the micro-batch waits for the call."""
        self._call: Call | None = None
        self._records: KeptRecords | None = None

    def take(self, call: Call) -> None:
        """Keep a call until it ends or leaves."""
        self._call = call

    def records_of(self, batch: InvocationBatch) -> FindRecord | None:
        """Return how to find the records of a batch, also when its call has left."""
        if batch.record is not None:
            self._records = KeptRecords(batch.record, len(batch.invocations))
        return self._records

    @property
    def call(self) -> Call:
        """The call."""
        if self._call is None:
            raise AssertionError("the call has left")
        return self._call

    def leave(self, attempt: str) -> Left:
        """Let the call go on under a name, without the rows and the state that it came with."""
        left = Left(attempt, self.call)
        if self._records is not None:
            self._records.keep()
        self.attempt, self._call = attempt, None
        return left


Begin = Callable[[RunningCall], Coroutine[Any, Any, T]]
"""Makes the coroutine that runs a call."""


class CallRunner(Protocol):
    """Runs calls of a worker process."""

    def end_of_time(self) -> IsOver | None:
        """Return what says that a call leaves the rest of its messages to another one; None: it takes all."""

    @property
    def worker(self) -> str:
        """The name of the process."""

    def run(self, calls: Sequence[Begin[T]], limit: int) -> list[T | BaseException | Left]:
        """Run calls until each has ended or has left.

        Args:
            calls: the calls, which begin in this order.
            limit: how many run at a time, besides those that have left.
        """

    def most(self, name: str) -> int | None:
        """Return how many messages a call of a function should take; None if that is not known yet."""

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:
        """Take note that a function is called now, so that its call may leave.

        Args:
            running: the call.
            name: the name of the function.
            detach_after: how long the micro-batch waits for the call.
        """

    def end(self, running: RunningCall, messages: int) -> None:
        """Take note that a call has ended, which has handled so many messages; 0 if it has failed."""

    def place(self, function: StatefulFunction) -> AbstractAsyncContextManager[None]:
        """Wait until one more call of a function may be made."""

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Report what a call that has left has come to.

        Args:
            key: the key of the called address.
            attempt: names the call.
            result: the encoded result; None if the call has none and is to be made again.
        """


class WaitingRunner:
    """Runs calls to their ends: none leaves its micro-batch."""

    worker: str = ""

    def __init__(self) -> None:
        self._limits = CallLimits()

    def run(self, calls: Sequence[Begin[T]], limit: int) -> list[T | BaseException | Left]:
        """Run calls to their ends."""
        return [*await_all([begin(RunningCall()) for begin in calls], limit)]

    def most(self, name: str) -> int | None:  # noqa: ARG002 - it is the same for all
        """Return a number that no call reaches."""
        return sys.maxsize

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:
        """Do nothing: the micro-batch waits for the call."""

    def end_of_time(self) -> IsOver | None:
        """Return None: calls take all of their messages."""
        return None

    def end(self, running: RunningCall, messages: int) -> None:
        """Do nothing: calls may take as long as they do."""

    def place(self, function: StatefulFunction) -> AbstractAsyncContextManager[None]:
        """Wait until one more call of a function may be made."""
        return self._limits.place(function)

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Refuse: no call has left.

        Raises:
            AssertionError: always.
        """
        raise AssertionError(f"call {attempt} of {key!r} cannot have left: {result!r}")
