# SPDX-License-Identifier: Apache-2.0
"""Unit tests of one function: deliver messages, and examine the effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

import attrs

from statefun.sdk.address import Address
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.event_loop import outside_of_loops
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import Invocation, InvocationBatch, InvocationResult
from statefun.sdk.record import IngressRecord
from statefun.sdk.sent import Cancellation
from statefun.sdk.state import State, state_values
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.times import from_epoch_millis, to_epoch_millis
from statefun.sdk.types import Type, TypedValue
from statefun.sdk.value_spec import ValueSpec
from statefun.sdk.values import encoded_as
from statefun.testing.arguments import checked_address, checked_time
from statefun.testing.outcomes import (
    DelayedMessage,
    PublishedRecord,
    SentMessage,
    argument_of,
    content,
)
from statefun.testing.pending import PendingMessages


class TestContext:
    """Calls a function as an application does, and collects its effects.

    >>> from statefun import Context, State, StatefulFunctions
    >>> functions = StatefulFunctions()
    >>> class Visits(State):
    ...     visits: int = 0
    >>> @functions.bind("com.example/greeter")
    ... def greet(ctx: Context, name: str, state: Visits) -> None:
    ...     state.visits += 1
    ...     ctx.send(Address("com.example/printer", "all"), f"Hello {name}")
    >>> context = TestContext("com.example/greeter", "Ada", functions=functions)
    >>> context.deliver("Ada")
    >>> context.sent
    [SentMessage(target=Address(namespace='com.example', name='printer', id='all'), value='Hello Ada')]
    >>> context.state
    {'visits': 1}

    Raises:
        DefinitionError: if the function is not registered, or a given value of the state does not have the
            type that the function declares.
    """

    __test__: ClassVar = False  # no class of tests, though pytest may think so by the name

    def __init__(
        self,
        function: str | Callable[..., Any],
        id: str = "id",  # noqa: A002 - as addresses have it
        *,
        state: Mapping[str, Any] | State | None = None,
        functions: StatefulFunctions = default_functions,
    ) -> None:
        """Make a test context for one address.

        Args:
            function: the registered function, or its typename.
            id: the id of the address.
            state: the stored values, by name; or an object of a state class with these values. Names may be
                former ones, and a value of an older type is given as a :class:`~statefun.TypedValue`.
            functions: the registry in which the function is registered.
        """
        self._function = _find(function, functions)
        # A function of a whole namespace is called under the given name.
        typename = function if isinstance(function, str) else str(self._function.typename)
        self.address = Address(typename, id)
        """The address of the function."""
        values = state_values(state) if isinstance(state, State) else dict(state or {})
        specs = self._function.specs
        unknown = set(values) - {*specs, *self._function.renamed_values}
        if unknown:
            raise DefinitionError(
                f"function {typename} stores no value {min(unknown)!r} "
                f"(it stores: {', '.join(sorted(specs)) or 'none'})"
            )
        self._stored: dict[str, TypedValue] = {
            name: value if isinstance(value, TypedValue) else encoded_as(self._spec(name), value)
            for name, value in values.items()
        }
        self.sent: list[SentMessage] = []
        """The messages that the function has sent to functions, in order."""
        self.delayed: list[DelayedMessage] = []
        """The messages that the function has sent with a delay, in order, including cancelled messages."""
        self.cancelled: list[str] = []
        """The tokens of the delayed messages that the function has cancelled, in order."""
        self.egress: list[PublishedRecord] = []
        """The records that the function has sent to all egresses, in order; see also ``egress_of``."""
        self._egress_of: dict[str, list[PublishedRecord]] = {}
        self._pending = PendingMessages(self.address)

    @property
    def state(self) -> dict[str, Any]:
        """The stored values, decoded, by name; values that are not set are missing."""
        return {name: self._decoded(name, value) for name, value in sorted(self._stored.items())}

    def _decoded(self, name: str, value: TypedValue) -> Any:
        # The values of windows have specs of their own.
        known = name in self._function.specs or name in self._function.renamed_values
        return self._spec(name).type.decode(*value) if known else content(value)

    def _spec(self, name: str) -> ValueSpec:
        """Return the spec of the value with a name, which may be a former name."""
        return self._function.specs[self._function.renamed_values.get(name, name)]

    def egress_of(self, typename: str) -> list[PublishedRecord]:
        """Return the records that the function has sent to one egress, in order."""
        return self._egress_of.get(typename, [])

    def deliver(  # noqa: PLR0913 - the parts of a message
        self,
        value: Any,
        *,
        value_type: Type[Any] | None = None,
        caller: Address | None = None,
        record: IngressRecord | None = None,
        event_time: datetime | None = None,
        watermark: datetime | None = None,
    ) -> None:
        """Call the function with a value; if the function fails, raise its exception and drop its effects.

        No time passes: a message in ``delayed`` is pending until it is cancelled, or the test removes it. A call
        that uses its token again fails, as in an application.

        Args:
            value: the value, or a whole :class:`~statefun.Message`, or a
                :class:`~statefun.TypedValue`.
            value_type: the type of the value; None: the type for the value's class, as in ``ctx.send``.
            caller: the address that sends the message.
            record: the ingress record that becomes the message.
            event_time: the event time of the message.
            watermark: the watermark that the function sees.

        Raises:
            DefinitionError: if an argument is not as described above.
            FunctionError: if the function sends a delayed message with a token that is in use.
        """
        if caller is not None:
            checked_address("the caller", caller)
        if not (record is None or isinstance(record, IngressRecord)):
            raise DefinitionError(f"the record must be an IngressRecord, not {record!r}")
        event_time = checked_time("the event_time", event_time)
        watermark = checked_time("the watermark", watermark)
        batch = InvocationBatch(
            self.address,
            self._stored,
            [Invocation(caller, argument_of(self.address, value, value_type))],
            None if record is None else lambda _index: record,
            times=[None if event_time is None else to_epoch_millis(event_time)],
            watermark=None if watermark is None else to_epoch_millis(watermark),
        )
        # What a server does: the first exception is raised as it is.
        function = attrs.evolve(self._function, on_failure=None)
        result = _call(function, batch)
        later = [
            each if isinstance(each, Cancellation) else DelayedMessage.of(each)
            for each in result.delayed
        ]
        self._pending.add(self.delayed, later, watermark)
        self._take_over(result, later)

    def _take_over(
        self, result: InvocationResult, later: Sequence[DelayedMessage | Cancellation]
    ) -> None:
        for name, value in result.state_mutations.items():
            if value is None:
                self._stored.pop(name, None)
            else:
                self._stored[name] = value
        self.sent += map(SentMessage.of, result.messages)
        for each in later:
            if isinstance(each, Cancellation):
                self.cancelled.append(each.cancellation_token)
            else:
                self.delayed.append(each)
        for wake_up in result.wake_ups:
            when = from_epoch_millis(wake_up.due)
            self.delayed.append(
                DelayedMessage(
                    timedelta(0), self.address, TypedValue(wake_up.typename, b""), "", when
                )
            )
        for message in result.egress_messages:
            record = _record_of(message)
            self.egress.append(record)
            self._egress_of.setdefault(message.typename, []).append(record)


def _find(function: str | Callable[..., Any], functions: StatefulFunctions) -> StatefulFunction:
    if isinstance(function, str):
        return functions.for_typename(function)
    for each in functions:
        if any(handler.fun is function for handler in each.handlers):
            return each
    raise DefinitionError(
        f"{function!r} is not registered; decorate the function with @function, or pass the argument "
        "functions: the registry in which the function is registered"
    )


def _call(function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
    if not function.is_async:
        return invoke(function, batch, served=True)
    # A test that is a coroutine has a loop already.
    return outside_of_loops(lambda: asyncio.run(invoke_async(function, batch, served=True)))


def _record_of(message: EgressMessage) -> PublishedRecord:
    if isinstance(message, KafkaEgressMessage):
        return PublishedRecord.of(message)
    value = content(message.typed_value)
    return PublishedRecord(value if isinstance(value, bytes) else message.typed_value.value)
