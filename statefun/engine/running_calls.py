# SPDX-License-Identifier: Apache-2.0
"""Calls of coroutine functions, which run concurrently and may leave their micro-batch.

A call that takes long leaves: it goes on while its micro-batch is committed. Its result is reported to the
driver later, and comes to the called address as a message.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    nullcontext,
    suppress,
)
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


class AbandonedError(Exception):
    """Ends a call before its function runs, since the call has left its micro-batch and its result would not count."""


class Left:
    """Stands for the result of a call that has left its micro-batch, until the call ends."""

    __slots__ = ("attempt", "call", "worker")

    def __init__(self, attempt: str, worker: str, call: Call) -> None:
        self.worker = worker
        """The name under which the call's process reports to the driver, when the call leaves."""
        self.attempt = attempt
        """The name of the call, under which its result is reported."""
        self.call = call


class KeptRecords:
    """Finds the ingress records of a call's messages, also after the rows of the messages were dropped."""

    __slots__ = ("_count", "_find", "_kept")

    def __init__(self, find: FindRecord, count: int) -> None:
        self._find: FindRecord | None = find
        self._count = count
        self._kept: list[IngressRecord | None] = []

    def __call__(self, index: int) -> IngressRecord | None:
        """Return the record that became the message with an index; None for a message of a function."""
        return self._kept[index] if self._find is None else self._find(index)

    def keep(self) -> None:
        """Copy the records out of their rows: else a call would keep its Arrow batch in memory until it ends."""
        self._kept, self._find = [self(index) for index in range(self._count)], None


class RunningCall:
    """A running call of a coroutine function, before or after the call has left its micro-batch."""

    __slots__ = (
        "_call",
        "_departure",
        "_records",
        "attempt",
        "begun",
        "detach_after",
        "is_alone",
        "losses",
        "name",
        "patience",
        "started",
        "worker",
    )

    def __init__(self) -> None:
        self.attempt = ""
        """The name of the call, which it gets when it leaves its micro-batch; empty before."""
        self.worker = ""
        """The name under which the process reported to the driver when the call left its micro-batch; empty before."""
        self.begun: int | None = None
        """When the micro-batch began to wait for the call, in intervals that the runner counts; None before."""
        self.started = 0
        """When the call got its place and its function was called, in the same intervals; 0 before."""
        self.is_alone = False
        """Whether the called endpoint is called for no other address in this micro-batch."""
        self.losses = 0
        """How many times in a row the call was lost; 0 for a function behind an endpoint."""
        self.name = ""
        """The name of the function."""
        self.detach_after = timedelta(0)
        """How long micro-batches wait for a call of the function, as long as its calls mostly end in time."""
        self.patience = timedelta(0)
        """How long the micro-batch waits for the call."""
        self._call: Call | None = None
        self._records: KeptRecords | None = None
        self._departure: asyncio.Event | None = None
        """Is set when the call leaves its micro-batch; None if nobody waits for that."""

    def take(self, call: Call) -> None:
        """Keep ``call``, with its rows and its state, until it ends or leaves its micro-batch."""
        self._call = call

    def records_of(self, batch: InvocationBatch) -> FindRecord | None:
        """Return a function that finds the records of a batch, also after its call has left the micro-batch."""
        if batch.record is not None:
            self._records = KeptRecords(batch.record, len(batch.invocations))
        return self._records

    @property
    def call(self) -> Call:
        """The call, with its rows and its state, as long as it has not left its micro-batch."""
        if self._call is None:
            raise AssertionError("the call has left")
        return self._call

    async def departure(self, patience: timedelta) -> None:
        """Wait until the call has left its micro-batch, but no longer than ``patience``."""
        if not self.attempt:
            self._departure = asyncio.Event()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._departure.wait(), patience.total_seconds())

    def leave(self, attempt: str, worker: str) -> Left:
        """Give the call a name, as it leaves its micro-batch; return a ``Left`` with its rows and its state.

        This object then keeps no reference to the rows and the state.
        """
        left = Left(attempt, worker, self.call)
        if self._records is not None:
            self._records.keep()
        self.attempt, self.worker, self._call = attempt, worker, None
        if self._departure is not None:
            self._departure.set()
        return left


Begin = Callable[[RunningCall], Coroutine[Any, Any, T]]
"""Returns the coroutine that runs a call, given the object that represents the running call."""


class CallRunner(Protocol):
    """Runs calls of coroutine functions in a worker process."""

    def started(self, running: RunningCall) -> IsOver | None:
        """Record that a call has its place and runs; return a function that returns whether its time is used up.

        The call then handles no further message; another call gets the remaining messages. The result is
        None if calls may take any time. The time for which the call has waited for its place does not count.
        """

    def run(self, calls: Sequence[Begin[T]], limit: int) -> list[T | BaseException | Left]:
        """Run calls until each has ended or has left the micro-batch.

        Args:
            calls: the calls, which begin in this order.
            limit: how many run at a time, in addition to calls that have left their micro-batches.

        Returns:
            For each call its result, or the exception that it has raised, or a ``Left`` if it has left.
        """

    def most(self, name: str) -> int | None:
        """Return how many messages one call of a function should get; None if no call was measured yet.

        Args:
            name: the name of the function.
        """

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:
        """Record that a call of a function begins: from now on, the call may leave the micro-batch.

        Args:
            running: the call.
            name: the name of the function.
            detach_after: how long the micro-batch waits for the call.
        """

    def end(self, running: RunningCall, messages: int) -> None:
        """Record that a call has ended.

        Args:
            running: the call.
            messages: how many messages the call has handled; 0 if it has failed.
        """

    def place(
        self, function: StatefulFunction, running: RunningCall
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until one more call of a function may run.

        A call does not wait for the places of long calls if its endpoint is called for no other address, since its
        micro-batch waits for it. A call that was lost before also waits until it has left its micro-batch, the
        micro-batch is staged, and few other calls run: if the call then ends the process, the micro-batch does not
        fail.

        Args:
            function: the function.
            running: the call.

        Raises:
            AbandonedError: when the context is entered, if the result of the call would not count any more.
        """

    def plain_calls(self) -> AbstractContextManager[None]:
        """Return a context manager in which this thread may call plain functions; see :meth:`Company.plain_calls`."""

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Report the result of a call that has left its micro-batch to the driver.

        Args:
            key: the key of the called address.
            attempt: the name of the call.
            result: the encoded result; None if the call has no result and has to be made again.
        """


class WaitingRunner:
    """Runs each call to its end: no call leaves its micro-batch."""

    def __init__(self) -> None:
        self._limits = CallLimits()

    def run(self, calls: Sequence[Begin[T]], limit: int) -> list[T | BaseException | Left]:
        """Run each call to its end; return its result, or the exception that it has raised."""
        return [*await_all([begin(RunningCall()) for begin in calls], limit)]

    def most(self, name: str) -> int | None:  # noqa: ARG002 - it is the same for all
        """Return a number that no call reaches, so that a call gets all messages of its address."""
        return sys.maxsize

    def begin(self, running: RunningCall, name: str, detach_after: timedelta) -> None:
        """Do nothing: the micro-batch waits for the call."""

    def started(self, running: RunningCall) -> IsOver | None:  # noqa: ARG002 - it is the same for all
        """Return None: a call handles all of its messages, however long that takes."""
        return None

    def end(self, running: RunningCall, messages: int) -> None:
        """Do nothing: this runner does not measure how long calls take."""

    def place(
        self,
        function: StatefulFunction,
        running: RunningCall,
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that waits until one more call of a function may run."""
        return self._limits.place(function, is_alone=running.is_alone)

    def plain_calls(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: no call was lost before."""
        return nullcontext()

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Raise an error: a call of this runner cannot have left its micro-batch.

        Raises:
            AssertionError: always.
        """
        raise AssertionError(
            f"call {attempt} of {key!r} must not leave its micro-batch, but has reported {result!r}"
        )
