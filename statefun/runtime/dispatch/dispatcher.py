# SPDX-License-Identifier: Apache-2.0
"""Dispatching: messages of addresses and their state in, new state and effects out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from statefun.protocol.runtime_pb2 import AddressState, Failure
from statefun.runtime.dispatch.payload import Program
from statefun.runtime.effects import Effects, kafka_record
from statefun.runtime.envelope import REJECTION_NAMESPACE, SEPARATOR, address_of, rejection
from statefun.sdk.address import Address
from statefun.sdk.errors import (
    DefinitionError,
    RecordError,
    StatefunError,
    UnknownFunctionError,
)
from statefun.sdk.functions import StatefulFunction
from statefun.sdk.invocation import (
    Invocation,
    InvocationBatch,
    InvocationFailedError,
    InvocationResult,
    invoke,
    invoke_async,
)
from statefun.sdk.message import Message
from statefun.sdk.types import TypedValue


class Columns(NamedTuple):
    """Rows of ``envelope.SCHEMA`` without their target, column by column."""

    offset: Sequence[int]
    caller: Sequence[bytes | None]
    typename: Sequence[str]
    value: Sequence[bytes]
    topic: Sequence[str | None]
    partition: Sequence[int | None]

    def origin(self, row: int) -> str:
        """Say where a row came from, for people."""
        partition = self.partition[row]
        if self.topic[row] is not None and partition is not None:
            # pandas turns a column of integers that has nulls into one of floats.
            return f"topic {self.topic[row]}, partition {int(partition)}, offset {self.offset[row]}"
        caller = self.caller[row]
        return f"message from {address_of(caller)}" if caller is not None else "message"


class AddressValues:
    """The state of one address while its messages are dispatched."""

    __slots__ = ("changed", "values")

    def __init__(self, stored: bytes | None) -> None:
        self.values: dict[str, TypedValue] = (
            {
                value.name: TypedValue._make((value.typename, value.value))
                for value in AddressState.FromString(stored).values
            }
            if stored
            else {}
        )
        """The current values by name."""
        self.changed = False
        """Whether they differ from what was stored."""

    def apply(self, mutations: Mapping[str, TypedValue | None]) -> None:
        """Take over what an invocation has assigned and deleted."""
        values = self.values
        for name, value in mutations.items():
            if values.get(name) == value:
                continue
            self.changed = True
            if value is None:
                del values[name]
            else:
                values[name] = value

    def encoded(self) -> bytes | None:
        """Return what to store; None if the address keeps nothing."""
        if not self.values:
            return None
        state = AddressState()
        for name, (typename, value) in self.values.items():
            state.values.add(name=name, typename=typename, value=value)
        return state.SerializeToString()


class Group(NamedTuple):
    """What arrived for one address, and its state."""

    key: bytes
    columns: Columns
    start: int
    """The first of its rows in ``columns``."""
    end: int
    """The row behind its last one."""
    values: AddressValues


class DispatchError(Exception):
    """Dispatching stopped at one row; carries what the driver reports."""

    def __init__(self, error: StatefunError, traceback: str = "") -> None:
        super().__init__(str(error))
        self.failure = Failure(
            code=error.code, message=_printable(error.message), traceback=_printable(traceback)
        )


class Dispatcher:
    """Calls a program's functions; one instance serves one task."""

    def __init__(self, program: Program, concurrency: int) -> None:
        self._functions = program.functions
        self._egresses = dict.fromkeys(program.egresses)
        self._concurrency = concurrency
        self._suffixes: dict[str, bytes] = {}

    def dispatch(self, groups: Iterable[Group], effects: Effects) -> Iterator[Group]:
        """Invoke the functions at the addresses of ``groups``, each of which occurs once.

        Coroutine functions of different addresses run side by side; each address's messages
        are handled one after the other.

        Yields:
            Each group whose values and effects are up to date. Nothing holds on to it any
            longer: a batch's worth of small objects would keep the garbage collector busy.

        Raises:
            DispatchError: if a row cannot be dispatched or an invocation failed; then no
                effects of this call may be used.
        """
        waiting: list[tuple[Group, StatefulFunction, InvocationBatch]] = []
        for group in groups:
            address = address_of(group.key)
            function = self._functions.find(address.typename)
            if function is None:
                raise self._no_function(address, group)
            batch = InvocationBatch(address, group.values.values, _invocations(group))
            if function.is_async:
                waiting.append((group, function, batch))
                continue
            try:
                result = invoke(function, batch)
            except InvocationFailedError as failed:
                raise _failed(failed, group) from failed
            self._collect(group, address, result, effects)
            yield group
        if waiting:
            calls = [invoke_async(function, batch) for _, function, batch in waiting]
            results = _event_loop().run_until_complete(_side_by_side(calls, self._concurrency))
            for (group, _, batch), outcome in zip(waiting, results, strict=True):
                if isinstance(outcome, InvocationFailedError):
                    raise _failed(outcome, group) from outcome
                if isinstance(outcome, BaseException):
                    raise outcome
                self._collect(group, batch.target, outcome, effects)
                yield group

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

    def _collect(
        self, group: Group, address: Address, result: InvocationResult, effects: Effects
    ) -> None:
        try:
            for message in result.messages:
                effects.messages.append(*self._row(group.key, message))
            for sent in result.egress_messages:
                record = kafka_record(sent, self._egresses)
                row = (record.typename, record.topic, record.key, record.value)
                effects.egress.append(row, len(record.value))
        except StatefunError as error:
            raise DispatchError(
                type(error)(f"function {address.typename} at address {address}: {error.message}")
            ) from error
        group.values.apply(result.state_mutations)

    def _row(self, caller: bytes, message: Message) -> tuple[tuple[bytes, bytes, str, bytes], int]:
        """Return a message as a row of ``MESSAGE_SCHEMA``, and the size of its value."""
        typename = message.target_typename
        if typename not in self._suffixes:
            self._suffixes[typename] = self._suffix(typename, message.target_id)
        try:
            target = message.target_id.encode() + self._suffixes[typename]
        except UnicodeEncodeError as error:
            raise DefinitionError(
                f"{message.target_id!r} is not an id that a message can be sent to: {error}"
            ) from None
        type_, value = message.typed_value
        return (target, caller, type_, value), len(value)

    def _suffix(self, typename: str, id_: str) -> bytes:
        """Return what follows the id in the keys of all addresses of a registered type."""
        if self._functions.find(typename) is None:
            raise UnknownFunctionError(
                f"a message was sent to {typename}/{id_}, and no function {typename} is "
                f"registered{self._functions.hint(typename)}"
            )
        return SEPARATOR + typename.encode()


def _printable(text: str) -> str:
    """Escape lone surrogates, which users' error texts may hold and Protobuf refuses."""
    return text.encode("utf-8", "backslashreplace").decode()


def _invocations(group: Group) -> list[Invocation]:
    columns, rows = group.columns, slice(group.start, group.end)
    callers = [None if key is None else address_of(key) for key in columns.caller[rows]]
    arguments = map(TypedValue._make, zip(columns.typename[rows], columns.value[rows], strict=True))
    return [*map(Invocation._make, zip(callers, arguments, strict=True))]


def _failed(failed: InvocationFailedError, group: Group) -> DispatchError:
    error = failed.error
    origin = group.columns.origin(group.start + failed.index)
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
