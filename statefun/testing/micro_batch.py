# SPDX-License-Identifier: Apache-2.0
"""Runs one micro-batch of the engine in this process, and collects its effects.

The effects are returned and not applied: a micro-batch that is not committed leaves no trace.
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
from statefun.protocol.runtime_pb2 import DelayedMessage
from statefun.sdk.context import PrepareMessage
from statefun.sdk.errors import PlatformError
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction
from statefun.testing.leaving import ChoosingRunner, Report
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.remote_calls import call_until_answered
from statefun.testing.twice import check_same

RUN = "test"
"""The name of the run."""
_SIDE_BY_SIDE = 1000
"""How many coroutines of different addresses run at a time: the default of a worker."""


@attrs.frozen
class StoppedClock:
    """A clock that shows one time."""

    time: int
    """In milliseconds since the epoch."""

    def now(self) -> int:
        """Return the time."""
        return self.time

    def monotonic(self) -> int:
        """Return a fixed moment: no time passes."""
        return 0


@attrs.define
class BatchEffects:
    """The effects of a micro-batch."""

    states: dict[bytes, bytes | None] = attrs.field(factory=dict)
    """The states that have changed, by key; None if a state has no content any more."""
    messages: list[MessageRow] = attrs.field(factory=list)
    """The messages that were sent, in order."""
    released: list[MessageRow] = attrs.field(factory=list)
    """Delayed messages whose time has come, in the order in which they were due."""
    waiting: list[tuple[bytes, bytes]] = attrs.field(factory=list)
    """Delayed messages for a bucket: the bucket's key, and the messages in encoded form."""
    records: list[tuple[str, EgressRecord]] = attrs.field(factory=list)
    """The records for egresses, with the egress's typename."""
    skipped: list[str] = attrs.field(factory=list)
    """Texts about messages that a failure policy has skipped."""
    reports: list[Report] = attrs.field(factory=list)
    """What calls have come to that have left."""

    def take(self, effects: Effects) -> None:
        """Add the effects that the engine has collected."""
        released = []
        for row in (row for piece in effects.messages.take() for row in piece):
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
            self.records += [(egress, EgressRecord(*row)) for piece in rows.take() for row in piece]


class _Invoker(Invoker):
    """Calls functions, twice on demand; functions behind endpoints until they have answered."""

    def __init__(self, *, twice: bool) -> None:
        self._twice = twice

    def invoke(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Run a plain function."""
        result = super().invoke(function, batch, prepare)
        if self._twice:
            check_same(batch.target, result, super().invoke(function, batch, prepare))
        return result

    async def invoke_async(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Run a coroutine function, or one elsewhere."""
        call = super().invoke_async if function.transport is None else call_until_answered
        result = await call(function, batch, prepare)
        if self._twice:
            check_same(batch.target, result, await call(function, batch, prepare))
        return result


class _Counts(FailureCounts):
    """Keeps the texts of all skipped messages."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def skipped(self, failed: FailedMessage) -> None:
        """Keep the text of a message."""
        super().skipped(failed)
        self.texts.append(failed.text)


class MicroBatches:
    """Runs micro-batches of a program.

    Args:
        program: its functions, egresses and policies.
        twice: whether each function is called twice, to find out whether it does the same.
        runner: runs coroutine functions; the micro-batches wait for all calls if not given.
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
    ) -> BatchEffects:
        """Call the function of each address with its messages, and return the effects.

        Args:
            groups: messages by the key of their address.
            states: the states of all addresses, by key.
            now: the time, in milliseconds since the epoch.

        Raises:
            StatefunError: if a failure policy stops the application.
            PlatformError: if the endpoint of a function cannot be reached.
            NotDeterministicError: if functions are called twice, and two calls differ.
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
            run=RUN,
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
        if waiting_addresses:
            circuits = dispatcher.summary().circuits
            problems = [
                f"endpoint {each.endpoint} {each.problem}" for each in circuits if each.problem
            ]
            reason = "; ".join(problems) or "its endpoint is not to be called now"
            raise PlatformError(f"messages to {waiting_addresses[0]} would wait: {reason}")
        done.take(effects)
        done.skipped = counts.texts
        done.reports = self._runner.take() if self._runner else []
        return done


def _groups(
    groups: Sequence[tuple[bytes, Sequence[MessageRow]]], states: Mapping[bytes, bytes]
) -> list[Group]:
    return [
        Group(key, columns_of(rows), 0, len(rows), AddressValues(states.get(key)))
        for key, rows in groups
    ]
