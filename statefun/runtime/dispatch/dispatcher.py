# SPDX-License-Identifier: Apache-2.0
"""The dispatcher: it takes messages and state of addresses, and returns new state and effects."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple, cast

from statefun.module.sinks import egress_record
from statefun.protocol.runtime_pb2 import Outcome
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.remote.circuit import take_news
from statefun.runtime.dispatch import delays
from statefun.runtime.dispatch.buckets import send
from statefun.runtime.dispatch.calls import (
    Call,
    call_for,
    failed_again,
    failed_message,
    failed_row,
    postponed_messages,
    retry_of,
    seen_batch,
    waiting_row,
)
from statefun.runtime.dispatch.deserializing import deserialized
from statefun.runtime.dispatch.failures import RETRY, FailedMessage, Failures
from statefun.runtime.dispatch.groups import OWN, Group, Row
from statefun.runtime.dispatch.payload import Program
from statefun.runtime.dispatch.rejections import rejected
from statefun.runtime.rows.effects import Effects, egress_row
from statefun.runtime.rows.envelope import REJECTION_NAMESPACE, SEPARATOR, address_of
from statefun.runtime.timers.clock import BatchClock, in_milliseconds
from statefun.runtime.timers.wheel import NAMESPACE as TIMERS_NAMESPACE
from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation, DelayedMessage
from statefun.sdk.deadline import standby
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import (
    FunctionError,
    UnknownFunctionError,
)
from statefun.sdk.event_loop import await_all
from statefun.sdk.failure import OnFailure
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import (
    Invocation,
    InvocationBatch,
    InvocationResult,
    Postponed,
)
from statefun.sdk.message import Message
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import TypedValue

_LONGEST_HOLD = timedelta(seconds=5)
"""How long a micro-batch is held up for an endpoint until it is tried again."""
_LONGEST_HOLDS = timedelta(minutes=1)
"""How long that may go on: then what has come waits, too, and the next micro-batch is held up."""
_SEQUENCE_BITS = 32
"""Bits of a task's sequence numbers; a task sends fewer delayed messages than they count."""


class _Target(NamedTuple):
    """Facts about the addresses of a type."""

    suffix: bytes
    """The part of their keys after the id."""
    is_stateless: bool


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
    ) -> None:
        self._functions = program.functions
        self._egresses = program.egresses
        self._deserializer_of = program.deserializer_of
        self._clock, self._failures = clock, Failures(program.policies, clock)
        self._seen = partial(seen_batch, program.policies)
        self._batch = batch
        self._delivered_up_to = delivered_up_to
        self._concurrency = concurrency
        self._immediate = immediate
        self._targets: dict[str, _Target] = {}
        self._invocations = 0
        self._postponed = 0
        self._hold_until = time.monotonic() + _LONGEST_HOLDS.total_seconds()
        self._hold_for = timedelta(0)
        take_news()  # an earlier application's of this process
        self._sequence = batch << _SEQUENCE_BITS

    def dispatch(self, groups: Iterable[Group], effects: Effects) -> Iterator[Group]:
        """Invoke the functions at the addresses of ``groups``, each of which occurs once.

        Coroutine functions of different addresses run side by side; each address's messages
        are handled one after the other. Messages that need no other address's state are delivered
        here and now, behind all messages that wait for their sender.

        Yields:
            Each group, once its values and effects are up to date. The dispatcher drops it then, as
            a batch's worth of small objects would keep the garbage collector busy.

        Raises:
            DispatchError: if a row cannot be dispatched or an invocation failed; then no
                effects of this call may be used.
        """
        with standby():
            yield from self._dispatch(groups, effects)

    def _dispatch(self, groups: Iterable[Group], effects: Effects) -> Iterator[Group]:
        waiting: list[Call] = []
        for group in groups:
            call = self._run_plain(self._first_call(group, effects), effects)
            if call is None:
                yield group
            else:
                waiting.append(call)
        while waiting:
            calls = [invoke_async(each.function, self._seen(each), self._check) for each in waiting]
            results = await_all(calls, self._concurrency)
            again, self._hold_for = [], timedelta(0)
            for call, outcome in zip(waiting, results, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                following = self._run_plain(self._next_call(call, outcome, effects), effects)
                if following is None:
                    yield call.group
                else:
                    again.append(following)
            waiting = again
            if self._hold_for:
                time.sleep(self._hold_for.total_seconds())

    def _run_plain(self, call: Call | None, effects: Effects) -> Call | None:
        """Run calls of plain functions, up to a call that has to be awaited."""
        while call is not None and not call.function.is_async:
            result = invoke(call.function, self._seen(call), self._check)
            call = self._next_call(call, result, effects)
        return call

    def _first_call(self, group: Group, effects: Effects) -> Call | None:
        """Return the call for the rows of a group; None if the runtime handles them itself."""
        address = address_of(group.key)
        if address.namespace == TIMERS_NAMESPACE:
            delays.run(address.name, group, effects, self._clock.begun, self._token_in_use)
            return None
        if address.namespace == REJECTION_NAMESPACE:
            self._reject(address.name, group, effects)
            return None
        rows: Sequence[int] = range(group.start, group.end)
        special: Sequence[str] = ()
        if group.columns.has_own:
            typenames = group.columns.typename[group.start : group.end]
            special = [name for name in typenames if name.startswith(OWN)]
        if delays.WAKE_UP in special:
            rows = self._wake_up(group, rows, effects)
        values = group.values
        if values.is_held_back or values.waiting_until > self._clock.now():
            self._wait(
                group, [waiting_row(group, row) for row in rows], values.waiting_until, effects
            )
            return None
        if not (rows or values.waiting):
            return None
        function = self._functions.find(address.typename)
        if function is None:
            self._no_function(address, group, rows, effects)
            return None
        values.begin(self._delivered_up_to, self._clock)
        has_waited = bool(values.waiting)
        call = call_for(group, address, function, rows, may_be_retried=RETRY in special)
        return self._deserialized(call, effects) if special or has_waited else call

    def _deserialized(self, call: Call, effects: Effects) -> Call | None:
        """Return a call with decoded records; None if no message is left."""
        values = deserialized(call, self._deserializer_of)
        for failed in values.failed:
            self._handle(failed, call.function, effects)
        return values.call

    def _wake_up(self, group: Group, rows: Sequence[int], effects: Effects) -> Sequence[int]:
        """Remove the wake-ups from a group's rows; return the other rows."""
        typename, value = group.columns.typename, group.columns.value
        others = []
        for row in rows:
            if typename[row] == delays.WAKE_UP:
                group.values.wake_up(delays.wake_up_time(value[row]))
            else:
                others.append(row)
        group.values.expire(self._clock)
        delays.schedule_wake_up(group, effects)
        return others

    def _next_call(self, call: Call, result: InvocationResult, effects: Effects) -> Call | None:
        """Collect the effects of a call; return the next call of its group, if any."""
        count = len(call.batch.invocations)
        self._invocations += count if result.postponed is None else result.postponed.first
        self._collect(call, result, effects)
        for failed in result.failures:
            self._handle(failed_message(failed, call), call.function, effects)
        group, values = call.group, call.group.values
        if call.key == group.key:
            values.apply(result.state_mutations)
            if result.expiring:
                values.renew(result.expiring, result.state_mutations, self._clock.now())
                delays.schedule_wake_up(group, effects)
        if result.postponed is not None:
            return self._postpone(call, result.postponed, effects)
        return self._immediate_call(group) if group.last and values.immediate else None

    def _postpone(self, call: Call, postponed: Postponed, effects: Effects) -> Call | None:
        """Keep the messages whose endpoint is down at their address, so that none overtakes them.

        Returns:
            The call again, for after a while, if the address holds too many of them already.
        """
        group, values = call.group, call.group.values
        waiting = [*postponed_messages(call, postponed.first), *map(retry_of, values.immediate)]
        values.immediate.clear()
        until = self._clock.now() + in_milliseconds(postponed.wait)
        self._wait(group, waiting, until, effects)
        now = time.monotonic()
        if not (values.is_crowded and postponed.wait) or now >= self._hold_until:
            values.is_held_back = True
            return None
        self._hold_for = min(postponed.wait, _LONGEST_HOLD)
        again = call_for(group, call.batch.target, call.function, range(0), may_be_retried=True)
        return self._deserialized(again, effects)

    def _wait(
        self, group: Group, messages: Sequence[RetriedMessage], until: int, effects: Effects
    ) -> None:
        self._postponed += len(messages)
        group.values.wait(messages, until)
        delays.schedule_wake_up(group, effects)

    def _immediate_call(self, group: Group) -> Call:
        """Return the call for the first messages that may be delivered at once."""
        waiting, sender = group.values.immediate, address_of(group.key)
        key = waiting[0].target
        invocations = []
        while waiting and waiting[0].target == key:
            _, _, typename, value, trace = waiting.popleft()
            invocations.append(Invocation(sender, TypedValue(typename, value), trace))
        address = address_of(key)
        state = group.values.values if key == group.key else {}
        batch = InvocationBatch(address, state, invocations)
        return Call(group, key, self._functions.for_typename(address.typename), batch, ())

    def _no_function(
        self, address: Address, group: Group, rows: Sequence[int], effects: Effects
    ) -> None:
        """Apply the failure policy to messages whose function is not registered."""
        error = UnknownFunctionError(
            f"no function {address.typename} is registered{self._functions.hint(address.typename)}"
        )
        waited = [failed_again(group, each, error) for each in group.values.take_waiting()]
        for failed in (*waited, *(failed_row(group, row, error) for row in rows)):
            policy = self._record_policy(failed)
            if failed.record is None:  # a message of another function: none is lost silently
                policy = self._failures.policies.unregistered
            self._failures.handle(failed, policy, effects)

    def _reject(self, name: str, group: Group, effects: Effects) -> None:
        """Apply the failure policy to records that no function can receive."""
        for row in range(group.start, group.end):
            record, value = group.columns.record(row), group.columns.value[row]
            failed = failed_row(group, row, rejected(name, record, value, self._failures.policies))
            self._failures.handle(failed, self._record_policy(failed), effects)

    def _record_policy(self, failed: FailedMessage) -> OnFailure | None:
        record = failed.record
        return None if record is None else self._failures.policies.of_topic(record.topic)

    def _handle(self, failed: FailedMessage, function: StatefulFunction, effects: Effects) -> None:
        """Apply the failure policy to a message on which its function has failed."""
        topic = None if failed.record is None else failed.record.topic
        policies = self._failures.policies
        policy = policies.of_failure(function.on_failure, topic, failed.error)
        self._failures.handle(failed, policy, effects)

    def _token_in_use(self, message: Row, error: FunctionError, effects: Effects) -> None:
        """Apply the failure policy to a delayed message whose token is in use."""
        function = self._functions.find(address_of(message.caller).typename)
        policies = self._failures.policies
        target, caller, typename, value, trace = message
        cause = type(error).__name__
        failed = FailedMessage(target, caller, typename, value, None, error, cause, trace=trace)
        policy = policies.last_resort(function.on_failure if function else None)
        self._failures.handle(failed, policy, effects)

    def _check(self, sent: Message | EgressMessage) -> Message | KafkaEgressMessage | None:
        if isinstance(sent, Message):
            self._target(sent)
            return sent
        return egress_record(sent, self._egresses, self._clock.begun)

    def _collect(self, call: Call, result: InvocationResult, effects: Effects) -> None:
        """Take over the messages of a call, in the order that the reference prescribes."""
        for message in result.messages:
            row = self._row(call.key, message)
            if not self._is_immediate(call, row, message.target_typename):
                send(row, effects)
        if result.delayed:
            self._delay(call.key, result.delayed, effects)
        for record in cast("Sequence[KafkaEgressMessage]", result.egress_messages):
            effects.egress[record.typename].append(egress_row(record))

    def _is_immediate(self, call: Call, row: Row, typename: str) -> bool:
        """Keep a message for this micro-batch if it needs no other address's state.

        The order per sender and target forbids more. A function without state that is invoked here,
        because this group's address has messaged it, may be invoked elsewhere at the same time:
        its messages go through the outbox. So do messages from its own address, except messages
        to itself: such a message comes after earlier ones that went through the outbox.
        """
        values = call.group.values
        if call.key != call.group.key:
            return False
        if row.target == call.key:
            stays = values.immediate_count < self._immediate
        elif self._targets[typename].is_stateless and call.function.specs:
            stays = values.has_room(self._batch, self._delivered_up_to, self._immediate)
        else:
            return False
        if stays:
            values.immediate_count += 1
            values.immediate.append(row)
        return stays

    def _delay(
        self, caller: bytes, delayed: Iterable[DelayedMessage | Cancellation], effects: Effects
    ) -> None:
        now = self._clock.now()
        for each in delays.without_cancelled(delayed):
            token = each.cancellation_token
            if isinstance(each, Cancellation):
                delays.cancel(caller, token, effects)
                continue
            row = self._row(caller, each.message)
            due = now + in_milliseconds(each.delay)
            self._sequence += 1
            if token:
                delays.send_cancellable(due, row, token, effects, self._sequence)
            else:
                delays.send_at(due, row, effects, self._sequence)

    def _row(self, caller: bytes, message: Message) -> Row:
        target = message.target_id.encode() + self._target(message).suffix
        return Row(target, caller, *message.typed_value, message.trace)

    def _target(self, message: Message) -> _Target:
        """Return the facts about the type that ``message`` is for.

        Raises:
            UnknownFunctionError: if there is no such function.
        """
        typename = message.target_typename
        known = self._targets.get(typename)
        if known is not None:
            return known
        function = self._functions.find(typename)
        if function is None:
            raise UnknownFunctionError(
                f"a message was sent to {typename}/{message.target_id}, and no function {typename} "
                f"is registered{self._functions.hint(typename)}"
            )
        found = _Target(SEPARATOR + typename.encode(), function.is_stateless)
        self._targets[typename] = found
        return found

    def summary(self) -> Outcome:
        """Return the counts of handled and failed messages."""
        counts = self._failures.summary()
        counts.invocations, counts.postponed = self._invocations, self._postponed
        for endpoint, problem, wait in take_news():
            counts.circuits.add(
                endpoint=endpoint,
                problem=problem or "",
                worker=f"{platform.node()} {os.getpid()}",
                wait=in_milliseconds(wait),
            )
        return counts
