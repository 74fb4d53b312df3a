# SPDX-License-Identifier: Apache-2.0
"""Tables: the latest row of each key, and the streams that are joined with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, Optional, TypeVar

import attrs

from statefun.joins.parameters import named_after, report, taken_by
from statefun.sdk.address import Address, TypeName, checked_typename
from statefun.sdk.callables import is_coroutine_function, refuse_coroutine
from statefun.sdk.context import Context
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.failure import FailurePolicy
from statefun.sdk.fields import text_of_annotation
from statefun.sdk.functions import StatefulFunctions, default_functions, definition_of
from statefun.sdk.kafka_parts import topic_problem
from statefun.sdk.state_fields import StateField
from statefun.sdk.stateful_function import DEFAULT_TIMEOUT
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import Type

R = TypeVar("R")
V = TypeVar("V")
T = TypeVar("T")


class Table(Generic[R]):
    """A function whose addresses keep the latest row of their key: a table that other records are joined with.

    A value of the row's class replaces the row, and a message without a value, such as a tombstone of a compacted
    topic, deletes it. Values of other classes are joined with the row: :meth:`join` adds a handler that gets both.

    >>> from dataclasses import dataclass
    >>> from statefun import Context, StatefulFunctions
    >>> @dataclass
    ... class Customer:
    ...     name: str
    >>> @dataclass
    ... class Order:
    ...     customer: str
    ...     item: str
    >>> customers = Table("com.example.docs/customers", Customer, functions=StatefulFunctions())
    >>> @customers.join
    ... def ship(ctx: Context, order: Order, customer: Customer | None) -> None:
    ...     if customer is not None:
    ...         ctx.send(Address("com.example.docs/shipping", customer.name), order.item)
    >>> def forward(ctx: Context, order: Order) -> None:
    ...     ctx.send(customers.address(order.customer), order)

    Raises:
        DefinitionError: if an argument is ill-formed, or values of the class cannot be stored.
    """

    def __init__(  # noqa: PLR0913 - each is a property of a function
        self,
        typename: str,
        row: type[R],
        *,
        materialize: str | None = None,
        egress: str | None = None,
        on_failure: FailurePolicy | str | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        renamed_from: str | Iterable[str] | None = None,
        functions: StatefulFunctions = default_functions,
    ) -> None:
        """Register the function of a table.

        Args:
            typename: ``namespace/name``. In module.yaml, the route with the rows has it as target, and sets
                ``tombstones: deliver`` if tombstones delete rows.
            row: the class of the rows, or another annotation such as ``list[int]``.
            materialize: the topic to which each new row is published, and a tombstone for each deleted row, with the
                key of the row. So a compacted topic holds the present table; an exactly-once egress publishes each
                change once. Strings are written in UTF-8, bytes as they are, numbers in JSON, and other rows as their
                type encodes them, such as a dataclass in JSON.
            egress: the id of the Kafka egress that publishes to this topic, ``namespace/name``.
            on_failure: as for :func:`~statefun.function`.
            timeout: as for :func:`~statefun.function`.
            renamed_from: as for :func:`~statefun.function`.
            functions: the registry to which the function is added.
        """
        self.typename = typename.strip()
        """The typename of the function."""
        self._functions = functions
        self._changes = changes = _Changes()
        annotation: Any = Optional[row]  # noqa: UP045 - row may be any annotation
        spec = StateField("row", annotation, None).spec
        publish = _publisher(self.typename, egress, materialize, _published_type(row, spec.type))

        def keep(ctx: Context, value: Any) -> None:
            if value is not None:
                ctx.storage.row = value
            else:
                del ctx.storage.row
            if publish is not None:
                publish(ctx, value)
            changes(ctx, value)

        keep.__annotations__ = {"value": annotation}
        keep.__module__ = getattr(row, "__module__", keep.__module__)
        keep.__qualname__ = f"Table of {text_of_annotation(row)}"
        functions.register(
            typename,
            keep,
            [spec],
            on_failure=on_failure,
            timeout=timeout,
            renamed_from=renamed_from,
        )
        registered = functions.find(self.typename)
        if egress is not None and registered is not None:
            functions.replace(attrs.evolve(registered, publishes_to=TypeName.parse(egress)))

    def address(self, key: str) -> Address:
        """Return the address that keeps the row of a key; send values there to join them with the row."""
        return Address(self.typename, key)

    def join(
        self, fun: Callable[[Context, V, R | None], T], /
    ) -> Callable[[Context, V, R | None], T]:
        """Add a function that is called with each value of the class that it takes, and the row of the address.

        The row is the latest one that has come; None if there is none. The function may be a coroutine function.

        Raises:
            DefinitionError: naming the function and its file, if it does not take a context, a value and a row, or
                another handler takes such values.
        """
        if is_coroutine_function(fun):

            async def find_async(ctx: Context, value: V) -> None:
                await fun(ctx, value, ctx.storage.row)

            handler: Callable[..., Any] = named_after(fun, find_async)
        else:

            def find(ctx: Context, value: V) -> T:
                return fun(ctx, value, ctx.storage.row)

            handler = named_after(fun, find)
        try:
            values, _ = taken_by(fun, "value", "row")
            self._functions.register_handler(self.typename, values, handler)
        except DefinitionError as error:
            report(fun, error, handler)
        return fun

    def on_change(
        self, fun: Callable[[Context, R | None], None], /
    ) -> Callable[[Context, R | None], None]:
        """Add a function that is called with each new row, and with None when the row of a key is deleted.

        Raises:
            DefinitionError: naming the function and its file, if it does not take a context and a row, or is a
                coroutine function.
        """
        try:
            taken_by(fun, "row")
            if is_coroutine_function(fun):
                raise DefinitionError("a handler of changes must not be a coroutine function")
        except DefinitionError as error:
            report(fun, error)
        else:
            self._changes.add(fun)
        return fun


def _publisher(
    typename: str, egress: str | None, topic: str | None, type_: Type[Any] | None
) -> Callable[[Context, Any], None] | None:
    """Return a function that publishes a row, or a tombstone if it is called with None.

    If the table is not to be published, there is no such function, and the result is None.

    Args:
        typename: the typename of the table.
        egress: the id of the egress.
        topic: the topic.
        type_: encodes the rows; None for strings and bytes.
    """
    if egress is None and topic is None:
        return None
    if not (isinstance(topic, str) and topic and isinstance(egress, str)):
        raise DefinitionError(
            f"table {typename}: to publish its changes, give both the topic, as materialize, and the egress, "
            f"not {topic!r} and {egress!r}"
        )
    if problem := topic_problem(topic):
        raise DefinitionError(f"table {typename}: {problem}")
    id_ = checked_typename(egress)

    def publish(ctx: Context, row: Any) -> None:
        value_type = None if row is None else type_
        ctx.send(
            KafkaEgressMessage(
                id_, topic=topic, key=ctx.address.id, value=row, value_type=value_type
            )
        )

    return publish


def _published_type(row: Any, stored: Type[Any]) -> Type[Any] | None:
    """Return the type that encodes rows when they are published; None for strings and bytes, which need none.

    Args:
        row: the annotation of the rows.
        stored: the type that encodes rows in the state.
    """
    if row is str or row is bytes:
        return None
    # In the state, numbers have a form of their own, which other applications do not read.
    is_number = row is int or row is float or row is bool
    return StructuredType(stored.typename, row, "json") if is_number else stored


class _Changes:
    """Calls the functions that :meth:`Table.on_change` has added."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str | None, str], Callable[[Context, Any], object]] = {}

    def add(self, fun: Callable[[Context, Any], object]) -> None:
        self._handlers[definition_of(fun)] = fun  # a module or notebook cell may run again

    def __call__(self, ctx: Context, row: Any) -> None:
        for each in self._handlers.values():
            refuse_coroutine(each(ctx, row))
