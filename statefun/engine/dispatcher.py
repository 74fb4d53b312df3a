# SPDX-License-Identifier: Apache-2.0
"""The dispatcher: it calls functions with the messages and states of addresses, and collects the effects."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, cast

from statefun.engine import chunks, delays, repairs
from statefun.engine.address_keys import address_of
from statefun.engine.address_values import AddressValues
from statefun.engine.alarms import on_standby
from statefun.engine.awaited_calls import AwaitedCalls
from statefun.engine.calls import (
    Call,
    call_for,
    failed_again,
    failed_message,
    failed_row,
    postponed_messages,
    visible_batch,
    waiting_row,
)
from statefun.engine.clock import BatchClock
from statefun.engine.deserializing import deserialized
from statefun.engine.effects import Effects, egress_row
from statefun.engine.event_times import TaskTimes
from statefun.engine.failed_messages import FailedMessages
from statefun.engine.failures import RETRY, FailureCounts, Failures
from statefun.engine.groups import OWN_PREFIX, Group
from statefun.engine.immediate import ImmediateMessages
from statefun.engine.invoker import Invoker
from statefun.engine.left_calls import LeftCalls, Reactions
from statefun.engine.own_messages import OwnMessages
from statefun.engine.program import Program
from statefun.engine.renamed import PresentNames
from statefun.engine.running_calls import CallRunner, Left, WaitingRunner
from statefun.engine.sending import Sender
from statefun.engine.tallies import Tallies
from statefun.engine.trace_journal import TraceJournal
from statefun.engine.transports import CallOutcome, PendingCall, TransportCalls
from statefun.protocol.runtime_pb2 import Outcome
from statefun.sdk.address import Address
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.errors import UnknownFunctionError
from statefun.sdk.invocation_batch import (
    InvocationBatch,
    InvocationResult,
    Postponed,
    Trouble,
    Turn,
)
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

_SEQUENCE_BITS = 32
"""How many low bits of a delayed message's sequence number count the messages of a task.

The bits above them hold the number of the micro-batch. No task sends so many messages that the low bits
overflow."""


class Dispatcher:
    """Calls a program's functions; one instance serves one task."""

    def __init__(  # noqa: PLR0913 - arguments that differ between tasks are keywords
        self,
        program: Program,
        clock: BatchClock,
        *,
        batch: int,
        delivered_up_to: int | None,
        concurrency: int,
        immediate: int,
        turn: Turn | None = None,
        invoker: Invoker | None = None,
        counts: FailureCounts | None = None,
        runner: CallRunner | None = None,
        watermark: int | None = None,
        journal: TraceJournal | None = None,
    ) -> None:
        self._journal = journal
        self._functions = program.functions
        self._names = PresentNames(program.functions)
        self._routes = program.routes
        self._watermark = watermark
        self._times = TaskTimes(program.routes, watermark, clock.begun)
        self._has_times = bool(program.routes.event_times)
        renames = self._names.are_renamed or program.routes.change_topics
        self._sees_all = not (renames or self._has_times)
        """Whether functions see batches as they are, with the names that rows have and without a watermark."""
        self._clock = clock
        self._batch = batch
        sequence = itertools.count((batch << _SEQUENCE_BITS) + 1)
        self._sender = Sender(program, clock, sequence, watermark)
        self._counts = counts or FailureCounts()
        failures = Failures(program.policies, clock, sequence, self._counts, self._names)
        self._failed = FailedMessages(program, failures, self._names)
        self._own = OwnMessages(clock, self._failed)
        self._immediate = ImmediateMessages(self._functions, batch, delivered_up_to, immediate)
        self._transports = TransportCalls(clock, self._counts, turn, self._immediate, self._names)
        self._runner = runner or WaitingRunner()
        self._left = LeftCalls(clock, self._runner, self._transports)
        self._awaited = AwaitedCalls(
            self._left, self._transports, self._invoke, self._deserialized, self._batch_for
        )
        self._find = cache(program.functions.find)  # functions do not change during a task
        self._delivered_up_to = delivered_up_to
        self._concurrency = concurrency
        self._tallies = Tallies(invoker or Invoker(), self._sender.check)

    def dispatch(self, groups: Iterable[Group], effects: Effects) -> Iterator[Group]:
        """Invoke the functions at the addresses of ``groups``, each of which occurs once.

        Coroutine functions of different addresses run concurrently; each address's messages
        are handled one after the other. Immediate messages are delivered in this micro-batch, after all
        rows of the address that has sent them.

        Yields:
            Each group, once its state and effects are complete. The dispatcher keeps no reference to a
            yielded group, as the small objects of a whole batch would keep the garbage collector busy.

        Raises:
            DispatchError: if the failure policy of a message is to stop the application; then the
                collected effects must not be used.
        """
        return on_standby(self.run(groups, effects))

    def run(self, groups: Iterable[Group], effects: Effects) -> Iterator[Group]:
        """Do the same as :meth:`dispatch`, for a caller that has installed the timer for timeouts.

        See :func:`statefun.sdk.deadline.standby`.
        """
        async_calls: list[Call | PendingCall] = []
        for group in groups:
            if self._has_times:
                self._times.begin(group, effects)
            call = self._run_plain(group, self._first_call(group, effects), effects)
            if call is None:
                yield self._settled(group, effects)
            else:
                async_calls.append(call)
        while async_calls:
            results = self._runner.run(
                [partial(self._awaited.run, each, effects) for each in async_calls],
                self._concurrency,
            )
            next_calls: list[Call | PendingCall] = []
            for call, outcome in zip(async_calls, results, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                self._conclude(call, outcome, effects)
                next_call = self._run_plain(call.group, None, effects)
                if next_call is None:
                    yield self._settled(call.group, effects)
                else:
                    next_calls.append(next_call)
            async_calls = next_calls
        if effects.wake_ups:
            delays.send_wake_ups(effects)

    def _settled(self, group: Group, effects: Effects) -> Group:
        """Move the waiting messages of a handled group to chunks, or ask chunks for messages; return the group."""
        values = group.values
        if values.later:
            self._transports.finish(group, effects)
        if values.waiting:  # they are complete and in order only now
            chunks.settle_chunks(values, group.key, effects)
        if values.chunks and not (values.waiting or self._has_to_wait(values)):
            chunks.ask(values, group.key, effects)
        if values.is_only_crowded:
            delays.schedule_wake_up(group, self._clock.now(), effects)
        if self._has_times:
            self._times.settle(group)
        elif values.held is not None:
            self._times.release(group)
        return group

    def _has_to_wait(self, values: AddressValues) -> bool:
        if values.under_way is not None or values.is_held_back:
            return True
        return bool(values.waiting_until) and values.waiting_until > self._clock.now()

    def _conclude(
        self, call: Call | PendingCall, outcome: CallOutcome | Left, effects: Effects
    ) -> None:
        """Collect the effects of a call; keep its messages if it has to wait or has left its micro-batch."""
        if isinstance(outcome, Left):
            self._left.leave(outcome, effects)
        elif isinstance(outcome, Postponed):
            messages = [waiting_row(call.group, row) for row in call.rows]
            self._transports.postpone(call.group, messages, outcome, effects)
        elif outcome is not None:
            self._collect_result(*outcome, effects)

    def _invoke(
        self, function: StatefulFunction, batch: InvocationBatch
    ) -> Coroutine[Any, Any, InvocationResult]:
        return self._tallies.invoke_async(function, batch)

    def _batch_for(self, call: Call) -> InvocationBatch:
        """Return the batch of a call with present names of callers, transformed topics, and the watermark."""
        if self._journal is not None:
            self._journal.begin(call)
        if self._sees_all and call.function.transport is None:
            return call.batch
        batch = self._names.batch(visible_batch(self._routes, call))
        if self._has_times:
            batch = batch._replace(watermark=self._watermark)
        if call.function.transport is None:
            return batch
        return self._transports.with_history(call, batch)

    def _run_plain(
        self, group: Group, call: Call | PendingCall | None, effects: Effects
    ) -> Call | PendingCall | None:
        """Run the calls of a group until a call has to be awaited; return this call without running it.

        A call of a coroutine function, or of a function behind an endpoint, has to be awaited.

        Args:
            group: the group.
            call: the first call; None to begin with the next immediate messages of the group.
            effects: collects the effects of the calls.

        Returns:
            The first call that has to be awaited; None if all calls of the group have been run.
        """
        call = call or self._immediate_call(group)
        while isinstance(call, Call) and not call.function.is_async:
            result = self._tallies.invoke(call.function, self._batch_for(call))
            self._collect_result(call, result, effects)
            call = self._immediate_call(group)
        return call

    def _first_call(self, group: Group, effects: Effects) -> Call | PendingCall | None:
        """Return the call for the rows of a group; None if no function is to be called now."""
        address = address_of(group.key)
        namespace, _, _, typename = address
        if namespace.startswith(OWN_PREFIX) and self._own.run_reserved(address, group, effects):
            return None
        rows, special = self._own.take(group, effects)
        if len(special) == group.end - group.start and repairs.CHANGES.issuperset(special):
            return None  # a repair alone must not call a function
        values = group.values
        function = self._find(typename)
        if function is not None and function.stored_as:
            address = function.address(address.id)
        if values.under_way is not None or special:
            values.begin(self._batch, self._delivered_up_to, self._clock)
            rows = self._left.settle(group, address, function, rows, self._reactions(effects))
            # While a call is under way, no wake-up is sent for the values that expire.
            delays.schedule_wake_up(group, self._clock.now(), effects)
        if self._has_to_wait(values):
            messages = [waiting_row(group, row) for row in rows]
            self._transports.wait(group, messages, values.waiting_until, effects)
            return None
        if values.chunks and rows:  # the messages of the chunks come first
            messages = [waiting_row(group, row) for row in rows]
            self._transports.append(group, messages, effects)
            rows = ()
        # While all messages are in chunks, a call is made only to ask its transport whether it takes calls.
        is_asked = values.chunks and function is not None and function.transport is not None
        if not (rows or values.waiting or is_asked):
            return None
        return self._new_call(group, address, function, rows, special, effects)

    def _new_call(  # noqa: PLR0913, PLR0917 - the parts of a call
        self,
        group: Group,
        address: Address,
        function: StatefulFunction | None,
        rows: Sequence[int],
        special: Collection[str],
        effects: Effects,
    ) -> Call | PendingCall | None:
        """Return the call of a function for rows; None if there is no such function."""
        if function is None:
            self._no_function(address, group, rows, effects)
            return None
        values = group.values
        values.begin(self._batch, self._delivered_up_to, self._clock)
        if function.is_async:
            rows = self._left.limited(group, function, rows)
        if function.transport is not None:
            return PendingCall(group, address, function, rows, RETRY in special)
        may_be_encoded = group.columns.has_encoded or bool(values.waiting) or RETRY in special
        if values.waiting_size:
            self._transports.resume(group)
        call = call_for(group, address, function, rows, may_be_retried=RETRY in special)
        return self._deserialized(call, effects) if may_be_encoded else call

    def _deserialized(self, call: Call, effects: Effects) -> Call | None:
        """Return a call with decoded records; None if all of its messages have failed or were dropped."""
        values = deserialized(call, self._routes)
        for failed in values.failed:
            self._failed.handle(failed, call.function, effects)
        if values.call is None:
            call.group.values.count_lost(0)  # losses were counted for a message that is gone
        return values.call

    def _collect_result(self, call: Call, result: InvocationResult, effects: Effects) -> None:
        """Apply the result of a call: its effects, its changes of state, and its failed messages."""
        # A tuple's items are read at once: compiled code takes longer for each name.
        mutations, messages, delayed, records, failures, expiring, postponed, trouble, own = result
        count = len(call.batch.invocations)
        handled = count if postponed is None else postponed.first
        self._tallies.count(call.function, call.batch.target, handled, result)
        if call.function.transport is not None and call.batch.times is not None:
            self._transports.give_times(call, result)
        if messages or delayed:
            self._immediate.collect(call, messages, delayed, self._sender, effects)
        for wake_up in own:
            self._sender.wake_up(call.key, wake_up, effects)
        for record in cast("Sequence[KafkaEgressMessage]", records):
            effects.egress[record.typename].append(egress_row(record))
        if self._journal is not None:
            self._journal.end(call, records, failures)
        for failed in failures:
            self._failed.handle(failed_message(failed, call), call.function, effects)
        if call.key == call.group.key:
            self._change_state(call, mutations, expiring, trouble, effects)
        if postponed is not None:
            waiting = [*postponed_messages(call, postponed.first)]
            self._transports.postpone(call.group, waiting, postponed, effects)

    def _change_state(
        self,
        call: Call,
        mutations: Mapping[str, TypedValue | None],
        expiring: Sequence[Expiration],
        trouble: Trouble,
        effects: Effects,
    ) -> None:
        """Apply the changes of a call to the state of its address."""
        values = call.group.values
        values.count_lost(0)  # losses are counted for the first message, which is a new one now
        values.apply(mutations)
        if expiring:
            values.renew(expiring, mutations, self._clock.now())
            delays.schedule_wake_up(call.group, self._clock.now(), effects)
        if call.function.transport is not None:
            values.remember(trouble)

    def _immediate_call(self, group: Group) -> Call | None:
        """Return the call for the next immediate messages of a group; None if there are none."""
        values = group.values
        if values.later or values.is_not_admitted or values.is_held_back:
            # Messages in ``later``, and further rows, come before the messages that the address has sent to itself.
            self._transports.leave_own(group)
        if not values.immediate:
            return None
        return self._immediate.next_call(group)

    def _no_function(
        self, address: Address, group: Group, rows: Sequence[int], effects: Effects
    ) -> None:
        """Apply the failure policy to messages whose function is not registered."""
        error = UnknownFunctionError(
            f"no function {address.typename} is registered{self._functions.hint(address.typename)}"
        )
        self._transports.resume(group)
        failed_messages = [failed_again(group, each, error) for each in group.values.take_waiting()]
        for failed in (*failed_messages, *(failed_row(group, row, error) for row in rows)):
            self._failed.without_function(failed, effects)

    def _reactions(self, effects: Effects) -> Reactions:
        """Return the callbacks that apply the result of a long call, and the failure policy for its failed messages."""
        return Reactions(
            lambda call, result: self._collect_result(call, result, effects),
            lambda failed, function: self._failed.handle(failed, function, effects),
        )

    def summary(self) -> Outcome:
        """Return the counts of handled, failed and waiting messages, and reports of endpoints and calls."""
        counts = self._counts.summary()
        self._tallies.report(counts, self._names)
        self._transports.report(counts)
        self._left.report(counts)
        self._times.report(counts)
        return counts
