# SPDX-License-Identifier: Apache-2.0
"""Runs micro-batches of the engine in this process for tests, and returns their effects.

This module does not apply the effects: ``InProcessApplication`` commits them, or drops them as in a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from statefun.engine.address_keys import address_of
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import DELAYED, RELEASED
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.failures import DispatchError, FailedMessage, FailureCounts
from statefun.engine.groups import Group
from statefun.engine.invoker import Invoker
from statefun.engine.program import Program
from statefun.engine.sinks import EgressRecord
from statefun.protocol.runtime_pb2 import DelayedMessage, EventTimes
from statefun.sdk.context import PrepareMessage
from statefun.sdk.errors import PlatformError
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction
from statefun.testing.leaving import ChoosingRunner, Report
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.remote_calls import call_until_answered
from statefun.testing.twice import check_same

_SIDE_BY_SIDE = 1000
"""How many calls of coroutine functions run at a time, as by default in a worker."""


@attrs.frozen
class StoppedClock:
    """A clock that always shows the same time."""

    time: int
    """The time that the clock shows, in milliseconds since the epoch."""

    def now(self) -> int:
        """Return the time that the clock shows."""
        return self.time

    def monotonic(self) -> int:
        """Always return the same number, as no time passes."""
        return 0


@attrs.define
class BatchEffects:
    """The effects of a micro-batch."""

    states: dict[bytes, bytes | None] = attrs.field(factory=dict)
    """The states that have changed, by the key of their address; None for a state without content."""
    messages: list[MessageRow] = attrs.field(factory=list)
    """The messages that were sent, in order, including the messages to buckets in ``waiting``."""
    released: list[MessageRow] = attrs.field(factory=list)
    """Delayed messages that are due, in the order of their due times."""
    waiting: list[tuple[bytes, bytes]] = attrs.field(factory=list)
    """Delayed messages that buckets get: the key of the bucket, and the encoded messages."""
    records: list[tuple[str, EgressRecord]] = attrs.field(factory=list)
    """The records for egresses, as pairs of an egress's typename and a record."""
    skipped: list[str] = attrs.field(factory=list)
    """The error texts of messages that a failure policy has skipped."""
    reports: list[Report] = attrs.field(factory=list)
    """The results of calls that have left their micro-batches and have ended."""
    event_times: EventTimes = attrs.field(factory=EventTimes)
    """What the micro-batch has found about event time."""

    def take(self, effects: Effects) -> None:
        """Add the effects that the engine has collected in ``effects``, and empty ``effects``."""
        released = []
        for row in (row for piece in effects.messages.take() for row in zip(*piece, strict=True)):
            message = MessageRow(*row)
            if message.typename == RELEASED:
                entry = DelayedMessage.FromString(message.value or b"")
                message = message._replace(
                    typename=entry.typename, value=entry.value, trace=entry.trace or None
                )
                released.append(((entry.due, entry.sequence), message))
                continue
            if message.typename == DELAYED:
                self.waiting.append((message.target, message.value or b""))
            self.messages.append(message)
        self.released += [message for _, message in sorted(released, key=lambda each: each[0])]
        for egress, rows in effects.egress.items():
            self.records += [
                (egress, EgressRecord(*row))
                for piece in rows.take()
                for row in zip(*piece, strict=True)
            ]


class _Invoker(Invoker):
    """Calls functions for tests: each function twice, if the option ``twice`` is set.

    A function behind an endpoint is called until all of its messages are handled, or the endpoint cannot
    be reached.
    """

    def __init__(self, *, twice: bool) -> None:
        self._twice = twice

    def invoke(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Call a plain function with the messages of a batch."""
        result = super().invoke(function, batch, prepare)
        if self._twice:
            check_same(function, batch.target, result, super().invoke(function, batch, prepare))
        return result

    async def invoke_async(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Call a coroutine function, or a function behind an endpoint, with the messages of a batch."""
        call = super().invoke_async if function.transport is None else call_until_answered
        result = await call(function, batch, prepare)
        if self._twice:
            check_same(function, batch.target, result, await call(function, batch, prepare))
        return result


class _Counts(FailureCounts):
    """Counts failed messages, and collects the error texts of messages that a failure policy skips."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def skipped(self, failed: FailedMessage) -> None:
        """Count a skipped message, and keep its error text."""
        super().skipped(failed)
        self.texts.append(failed.text)


class MicroBatches:
    """Runs micro-batches of a program.

    Args:
        program: the functions, egresses, failure policies and routes of the application.
        twice: whether each function is called twice, to check that both calls have the same effects.
        runner: runs calls of coroutine functions; if not given, micro-batches wait for all calls.
    """

    def __init__(
        self, program: Program, *, twice: bool, runner: ChoosingRunner | None = None
    ) -> None:
        self._program = program
        self._runner = runner
        self._invoker = _Invoker(twice=twice)
        self._number = 0

    def run(
        self,
        groups: Sequence[tuple[bytes, Sequence[MessageRow]]],
        states: Mapping[bytes, bytes],
        now: int,
        watermark: int | None = None,
    ) -> BatchEffects:
        """Run a micro-batch: call the function of each address with its messages, and return the effects.

        Args:
            groups: the key of each address, with the messages to the address.
            states: the states of all addresses, by the key of the address.
            now: the time, in milliseconds since the epoch.
            watermark: the watermark, in milliseconds since the epoch; None if there is none.

        Raises:
            StatefunError: if a failure policy stops the application.
            PlatformError: if the endpoint of a function cannot be reached.
            NotDeterministicError: if functions are called twice, and two calls have different effects.
        """
        self._number += 1
        done, effects, counts = BatchEffects(), Effects(), _Counts()
        dispatcher = Dispatcher(
            self._program,
            BatchClock(StoppedClock(now), now),
            batch=self._number,
            delivered_up_to=None,
            concurrency=_SIDE_BY_SIDE,
            immediate=0,
            invoker=self._invoker,
            counts=counts,
            runner=self._runner,
            watermark=watermark,
        )
        waiting_addresses = []
        try:
            for group in dispatcher.dispatch(_groups(groups, states), effects):
                if group.values.waiting_until > now and group.values.under_way is None:
                    waiting_addresses.append(address_of(group.key))
                if group.values.changed:
                    done.states[group.key] = group.values.encoded()
        except DispatchError as error:
            error.error.details = error.failure.traceback
            raise error.error from None
        summary = dispatcher.summary()
        if waiting_addresses:
            circuits = summary.circuits
            problems = [
                f"endpoint {each.endpoint} {each.problem}" for each in circuits if each.problem
            ]
            reason = "; ".join(problems) or "its endpoint must not be called now"
            raise PlatformError(
                f"messages to {waiting_addresses[0]} cannot be delivered now, and a test does not wait until "
                f"they can: {reason}"
            )
        done.take(effects)
        done.skipped = counts.texts
        done.event_times = summary.event_times
        done.reports = self._runner.take() if self._runner else []
        return done


def _groups(
    groups: Sequence[tuple[bytes, Sequence[MessageRow]]], states: Mapping[bytes, bytes]
) -> list[Group]:
    return [
        Group(key, columns_of(rows), 0, len(rows), AddressValues(states.get(key)))
        for key, rows in groups
    ]
