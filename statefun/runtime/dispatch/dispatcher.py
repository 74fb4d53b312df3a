# SPDX-License-Identifier: Apache-2.0
"""Dispatching: messages of addresses and their state in, new state and effects out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from statefun.protocol.runtime_pb2 import Failure
from statefun.runtime.clock import Clock, in_milliseconds
from statefun.runtime.dispatch import timers
from statefun.runtime.dispatch.groups import Columns, Group, Row
from statefun.runtime.dispatch.payload import Program
from statefun.runtime.effects import Effects, kafka_record
from statefun.runtime.envelope import REJECTION_NAMESPACE, SEPARATOR, address_of, rejection
from statefun.runtime.timers import NAMESPACE as TIMERS_NAMESPACE
from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation, DelayedMessage
from statefun.sdk.errors import (
    DefinitionError,
    RecordError,
    StatefunError,
    UnknownFunctionError,
)
from statefun.sdk.functions import StatefulFunction
from statefun.sdk.invocation import (
    FailedInvocation,
    Invocation,
    InvocationBatch,
    InvocationResult,
    invoke,
    invoke_async,
)
from statefun.sdk.message import Message
from statefun.sdk.types import TypedValue


class DispatchError(Exception):
    """Dispatching stopped at one row; carries what the driver reports."""

    def __init__(self, error: StatefunError, traceback: str = "") -> None:
        super().__init__(str(error))
        self.failure = Failure(
            code=error.code, message=_printable(error.message), traceback=_printable(traceback)
        )


class _Call(NamedTuple):
    """An invocation batch, for the sake of some rows of a group."""

    group: Group
    key: bytes
    """Of the address that is invoked: the group's, or one that the group's has messaged."""
    function: StatefulFunction
    batch: InvocationBatch
    rows: Sequence[int]
    """Where the messages are in the group's columns; empty if the group's address sent them."""


class _Target(NamedTuple):
    """What is known of the addresses of a type."""

    suffix: bytes
    """What follows the id in their keys."""
    is_stateless: bool


class Dispatcher:
    """Calls a program's functions; one instance serves one task."""

    def __init__(
        self, program: Program, clock: Clock, *, batch: int, concurrency: int, immediate: int
    ) -> None:
        self._functions = program.functions
        self._egresses = dict.fromkeys(program.egresses)
        self._clock = clock
        self._batch = batch
        self._concurrency = concurrency
        self._immediate = immediate
        self._targets: dict[str, _Target] = {}
        self.invocations = 0
        """How many messages functions have handled so far."""

    def dispatch(self, groups: Iterable[Group], effects: Effects) -> Iterator[Group]:
        """Invoke the functions at the addresses of ``groups``, each of which occurs once.

        Coroutine functions of different addresses run side by side; each address's messages
        are handled one after the other. What needs no other address's state is delivered here
        and now, behind all that waits for the address that sends it.

        Yields:
            Each group whose values and effects are up to date. Nothing holds on to it any
            longer: a batch's worth of small objects would keep the garbage collector busy.

        Raises:
            DispatchError: if a row cannot be dispatched or an invocation failed; then no
                effects of this call may be used.
        """
        waiting: list[_Call] = []
        for group in groups:
            call = self._run_plain(self._first_call(group, effects), effects)
            if call is None:
                yield group
            else:
                waiting.append(call)
        while waiting:
            calls = [invoke_async(call.function, call.batch) for call in waiting]
            results = _event_loop().run_until_complete(_side_by_side(calls, self._concurrency))
            again = []
            for call, outcome in zip(waiting, results, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                following = self._run_plain(self._next_call(call, outcome, effects), effects)
                if following is None:
                    yield call.group
                else:
                    again.append(following)
            waiting = again

    def _run_plain(self, call: _Call | None, effects: Effects) -> _Call | None:
        """Run calls of plain functions, up to one that has to be awaited."""
        while call is not None and not call.function.is_async:
            call = self._next_call(call, invoke(call.function, call.batch), effects)
        return call

    def _first_call(self, group: Group, effects: Effects) -> _Call | None:
        """Return what to invoke for the rows of a group; None if they are the runtime's own."""
        address = address_of(group.key)
        if address.namespace == TIMERS_NAMESPACE:
            try:
                timers.run(address.name, group, effects)
            except StatefunError as error:
                raise DispatchError(error) from error
            return None
        rows: Sequence[int] = range(group.start, group.end)
        if timers.WAKE_UP in group.columns.typename[group.start : group.end]:
            rows = self._wake_up(group, rows, effects)
            if not rows:
                return None
        function = self._functions.find(address.typename)
        if function is None:
            raise self._no_function(address, group)
        group.values.begin(self._batch, self._clock)
        batch = InvocationBatch(address, group.values.values, _invocations(group.columns, rows))
        return _Call(group, group.key, function, batch, rows)

    def _wake_up(self, group: Group, rows: Sequence[int], effects: Effects) -> Sequence[int]:
        """Take the wake-ups out of a group's rows; return the others."""
        typename, value = group.columns.typename, group.columns.value
        others = []
        for row in rows:
            if typename[row] == timers.WAKE_UP:
                group.values.wake_up(timers.wake_up_time(value[row]))
            else:
                others.append(row)
        group.values.expire(self._clock)
        timers.schedule_wake_up(group, effects)
        return others

    def _next_call(self, call: _Call, result: InvocationResult, effects: Effects) -> _Call | None:
        """Collect what a call has done; return the one that comes next in its group, if any."""
        self.invocations += len(call.batch.invocations)
        if result.failures:
            raise _failed(result.failures[0], call)
        self._collect(call, result, effects)
        group, function, values = call.group, call.function, call.group.values
        if call.key == group.key:
            values.apply(result.state_mutations)
            if function.expiring:
                values.renew(function.expiring, result.state_mutations, self._clock.now())
                timers.schedule_wake_up(group, effects)
        return self._immediate_call(group) if group.last and values.immediate else None

    def _immediate_call(self, group: Group) -> _Call:
        """Return the call that delivers the first messages that may be delivered at once."""
        waiting, sender = group.values.immediate, address_of(group.key)
        key = waiting[0].target
        invocations = []
        while waiting and waiting[0].target == key:
            _, _, typename, value = waiting.popleft()
            invocations.append(Invocation(sender, TypedValue(typename, value)))
        address = address_of(key)
        state = group.values.values if key == group.key else {}
        batch = InvocationBatch(address, state, invocations)
        return _Call(group, key, self._functions.for_typename(address.typename), batch, ())

    def _no_function(self, address: Address, group: Group) -> DispatchError:
        origin = group.columns.origin(group.start)
        if address.namespace == REJECTION_NAMESPACE:
            return DispatchError(RecordError(f"{origin}: {rejection(address.name)}"))
        return DispatchError(
            UnknownFunctionError(
                f"{origin}: no function {address.typename} is registered"
                f"{self._functions.hint(address.typename)}"
            )
        )

    def _collect(self, call: _Call, result: InvocationResult, effects: Effects) -> None:
        """Take over what was sent, in the order that the reference gives."""
        try:
            for message in result.messages:
                row = self._row(call.key, message)
                if not self._is_immediate(call, row, message.target_typename):
                    timers.send(row, effects)
            if result.delayed:
                self._delay(call.key, result.delayed, effects)
            for sent in result.egress_messages:
                record = kafka_record(sent, self._egresses)
                fields = (record.topic, record.key, record.value)
                effects.egress[record.typename].append(fields, len(record.value))
        except StatefunError as error:
            address = call.batch.target
            raise DispatchError(
                type(error)(f"function {address.typename} at address {address}: {error.message}")
            ) from error

    def _is_immediate(self, call: _Call, row: Row, typename: str) -> bool:
        """Keep a message for this micro-batch if it needs no other address's state.

        Order per sender and target forbids more. A function without state that is invoked here,
        for the sake of an address that has messaged it, may be invoked elsewhere at the same
        time: what it sends takes the long way. So does what it sends from its own address, except
        to itself: there, it comes behind what went the long way before.
        """
        values = call.group.values
        if call.key != call.group.key:
            return False
        if row.target == call.key:
            stays = values.immediate_count < self._immediate
        elif self._targets[typename].is_stateless and call.function.specs:
            stays = values.has_room(self._batch, self._immediate)
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
        for each in timers.settled(delayed):
            token = each.cancellation_token
            if isinstance(each, Cancellation):
                timers.cancel(caller, token, effects)
                continue
            row = self._row(caller, each.message)
            due = now + in_milliseconds(each.delay)
            if token:
                timers.send_cancellable(now, due, row, token, effects)
            else:
                timers.send_at(due, row, effects)

    def _row(self, caller: bytes, message: Message) -> Row:
        typename = message.target_typename
        if typename not in self._targets:
            self._targets[typename] = self._target(typename, message.target_id)
        try:
            target = message.target_id.encode() + self._targets[typename].suffix
        except UnicodeEncodeError as error:
            raise DefinitionError(
                f"{message.target_id!r} is not an id that a message can be sent to: {error}"
            ) from None
        return Row(target, caller, *message.typed_value)

    def _target(self, typename: str, id_: str) -> _Target:
        function = self._functions.find(typename)
        if function is None:
            raise UnknownFunctionError(
                f"a message was sent to {typename}/{id_}, and no function {typename} is "
                f"registered{self._functions.hint(typename)}"
            )
        return _Target(SEPARATOR + typename.encode(), not function.specs)


def _printable(text: str) -> str:
    """Escape lone surrogates, which users' error texts may hold and Protobuf refuses."""
    return text.encode("utf-8", "backslashreplace").decode()


def _invocations(columns: Columns, rows: Sequence[int]) -> list[Invocation]:
    if isinstance(rows, range):  # all of a group's
        taken = slice(rows.start, rows.stop)
        callers = columns.caller[taken]
        arguments = zip(columns.typename[taken], columns.value[taken], strict=True)
    else:
        callers = [columns.caller[row] for row in rows]
        arguments = zip(
            [columns.typename[row] for row in rows],
            [columns.value[row] for row in rows],
            strict=True,
        )
    senders = [None if key is None else address_of(key) for key in callers]
    values = map(TypedValue._make, arguments)
    return [*map(Invocation._make, zip(senders, values, strict=True))]


def _failed(failed: FailedInvocation, call: _Call) -> DispatchError:
    error = failed.error
    columns = call.group.columns
    sender = address_of(call.group.key)
    origin = columns.origin(call.rows[failed.index]) if call.rows else f"message from {sender}"
    return DispatchError(type(error)(f"{error.message} ({origin})"), failed.traceback)


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """Return the worker process's loop: what user code ties to it lives as long as it does."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


async def _side_by_side(
    calls: Sequence[Awaitable[InvocationResult]], limit: int
) -> list[InvocationResult | BaseException]:
    """Await all calls, at most ``limit`` at a time; one that fails leaves the others alone."""
    semaphore = asyncio.Semaphore(limit)

    async def bounded(call: Awaitable[InvocationResult]) -> InvocationResult:
        async with semaphore:
            return await call

    return await asyncio.gather(*map(bounded, calls), return_exceptions=True)
