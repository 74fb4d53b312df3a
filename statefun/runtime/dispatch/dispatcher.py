# SPDX-License-Identifier: Apache-2.0
"""Dispatching: one address's messages and state in, its new state and effects out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statefun.protocol.runtime_pb2 import AddressState, Failure
from statefun.runtime.dispatch.payload import Program
from statefun.runtime.effects import EgressColumns, kafka_record
from statefun.runtime.envelope import REJECTION_NAMESPACE, address_of, rejection
from statefun.sdk.address import Address
from statefun.sdk.errors import (
    FunctionError,
    InvocationError,
    RecordError,
    StatefunError,
    UnknownFunctionError,
)
from statefun.sdk.invocation import (
    Invocation,
    InvocationBatch,
    InvocationFailedError,
    InvocationResult,
    invoke,
    invoke_async,
)
from statefun.sdk.types import TypedValue


class Rows(NamedTuple):
    """Messages of one address, in order, column by column (see ``envelope.SCHEMA``)."""

    offset: Sequence[int]
    caller: Sequence[bytes | None]
    typename: Sequence[str]
    value: Sequence[bytes]
    topic: Sequence[str | None]
    partition: Sequence[int | None]

    def origin(self, index: int) -> str:
        """Say where a row came from, for people."""
        partition = self.partition[index]
        if self.topic[index] is not None and partition is not None:
            # pandas turns a column of integers that has nulls into one of floats.
            return (
                f"topic {self.topic[index]}, partition {int(partition)}, "
                f"offset {self.offset[index]}"
            )
        caller = self.caller[index]
        return f"message from {address_of(caller)}" if caller is not None else "message"


class AddressValues:
    """The state of one address while its messages are dispatched."""

    def __init__(self, stored: bytes | None) -> None:
        self._values: dict[str, TypedValue] = {}
        if stored:
            for value in AddressState.FromString(stored).values:
                self._values[value.name] = TypedValue(value.typename, value.value)
        self.changed = False
        """Whether :meth:`encoded` differs from what was stored."""

    @property
    def values(self) -> Mapping[str, TypedValue]:
        """The current values by name."""
        return self._values

    def apply(self, mutations: Mapping[str, TypedValue | None]) -> None:
        """Take over what an invocation has assigned and deleted."""
        for name, value in mutations.items():
            if self._values.get(name) == value:
                continue
            self.changed = True
            if value is None:
                del self._values[name]
            else:
                self._values[name] = value

    def encoded(self) -> bytes | None:
        """Return what to store; None if the address keeps nothing."""
        if not self._values:
            return None
        state = AddressState()
        for name, (typename, value) in self._values.items():
            state.values.add(name=name, typename=typename, value=value)
        return state.SerializeToString()


class DispatchError(Exception):
    """Dispatching stopped at one row; carries what the driver reports."""

    def __init__(self, error: StatefunError, traceback: str = "") -> None:
        super().__init__(str(error))
        self.failure = Failure(code=error.code, message=error.message, traceback=traceback)


class Dispatcher:
    """Calls an application's functions; one instance serves one task."""

    def __init__(self, program: Program) -> None:
        self._functions = program.functions
        self._egresses = dict.fromkeys(program.egresses)

    def dispatch(
        self, key: bytes, rows: Rows, values: AddressValues, effects: EgressColumns
    ) -> None:
        """Invoke the function at ``key`` with ``rows``; update its values, collect its effects.

        Raises:
            DispatchError: if a row cannot be dispatched or an invocation failed.
        """
        address = address_of(key)
        if address.namespace == REJECTION_NAMESPACE:
            reason = rejection(address.name)
            raise DispatchError(RecordError(f"{rows.origin(0)}: {reason}"))
        function = self._functions.find(address.typename)
        if function is None:
            hint = self._functions.hint(address.typename)
            raise DispatchError(
                UnknownFunctionError(
                    f"{rows.origin(0)}: no function {address.typename} is registered{hint}"
                )
            )
        invocations = [
            Invocation(None if caller is None else address_of(caller), TypedValue(typename, value))
            for caller, typename, value in zip(rows.caller, rows.typename, rows.value, strict=True)
        ]
        batch = InvocationBatch(address, values.values, invocations)
        try:
            if function.is_async:
                result = asyncio.run(invoke_async(function, batch))
            else:
                result = invoke(function, batch)
        except InvocationFailedError as failed:
            raise DispatchError(
                _with_origin(failed.error, rows.origin(failed.index)), failed.traceback
            ) from failed
        self._collect(address, result, effects)
        values.apply(result.state_mutations)

    def _collect(self, address: Address, result: InvocationResult, effects: EgressColumns) -> None:
        if result.messages:
            raise DispatchError(
                FunctionError(
                    f"function {address.typename} at address {address} sent a message to "
                    f"{result.messages[0].target_typename}: messages between functions are not "
                    "delivered by this version; send to an egress"
                )
            )
        try:
            for message in result.egress_messages:
                effects.append(kafka_record(message, self._egresses))
        except StatefunError as error:
            raise DispatchError(
                type(error)(f"function {address.typename} at address {address}: {error.message}")
            ) from error


def _with_origin(error: InvocationError, origin: str) -> InvocationError:
    return type(error)(f"{error.message} ({origin})")
