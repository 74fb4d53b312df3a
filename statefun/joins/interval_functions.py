# SPDX-License-Identifier: Apache-2.0
"""Registering functions that join two streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Protocol, TypeVar, cast

import attrs

from statefun.joins.as_of_calls import AsOfCalls
from statefun.joins.buffered import BUFFERED
from statefun.joins.interval_calls import WAKE_UP_TYPE, Interval, IntervalCalls, Unmatched
from statefun.joins.parameters import named_after, report, taken_by
from statefun.sdk.callables import is_coroutine_function
from statefun.sdk.context import Context
from statefun.sdk.errors import DefinitionError
from statefun.sdk.failure import FailurePolicy, OnFailure, late_policy
from statefun.sdk.functions import StatefulFunctions, default_functions, definition_of
from statefun.sdk.stateful_function import DEFAULT_TIMEOUT
from statefun.sdk.times import check_duration, in_milliseconds

L_contra = TypeVar("L_contra", contravariant=True)
R_contra = TypeVar("R_contra", contravariant=True)
L = TypeVar("L")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class JoinedFunction(Protocol[L_contra, R_contra]):
    """A function that joins two streams: the user's function, with an attribute that adds handlers."""

    def __call__(self, ctx: Context, left: L_contra, right: R_contra, /) -> None:
        """Call the function."""

    def on_unmatched(self, fun: F, /) -> F:
        """Add a function that is called with each record that has had no partner, when none can come any longer.

        It takes the context and a value; the annotation says which classes of values it gets: of one stream, or of both
        as a union.
        """


def joined(  # noqa: PLR0913 - each is a property of a function
    typename: str,
    *,
    after: timedelta,
    before: timedelta = timedelta(0),
    grace: timedelta = timedelta(0),
    late: OnFailure | str = OnFailure.SKIP,
    on_failure: FailurePolicy | str | None = None,
    timeout: timedelta | None = DEFAULT_TIMEOUT,
    renamed_from: str | Iterable[str] | None = None,
    functions: StatefulFunctions = default_functions,
) -> Callable[[Callable[[Context, L, R], None]], JoinedFunction[L, R]]:
    """Register the decorated function, which is called with pairs of records of two streams with one key.

    The annotations say which two classes of values are joined. A pair is a record of the first class, and one of the
    second class that is at most ``before`` earlier and at most ``after`` later in event time. The function is called
    once for each pair, as soon as both records have come, in whatever order.

    Args:
        typename: ``namespace/name``, as for :func:`~statefun.function`.
        after: by how much the second record may be later than the first one.
        before: by how much it may be earlier.
        grace: how far the watermark passes the time of a record before the record is late.
        late: the policy for late records: ``"skip"`` (default) drops and counts them, ``"dead-letter"`` writes them to
            the dead-letter topic, and ``"fail"`` stops the application.
        on_failure: as for :func:`~statefun.function`.
        timeout: as for :func:`~statefun.function`.
        renamed_from: as for :func:`~statefun.function`.
        functions: the registry to which the function is added.

    Raises:
        DefinitionError: naming the function and its file, if an argument is ill-formed, or the function does not take
            a context and values of two classes, or is a coroutine function.

    >>> from dataclasses import dataclass
    >>> from statefun import Address
    >>> @dataclass
    ... class Order:
    ...     item: str
    >>> @dataclass
    ... class Payment:
    ...     amount: float
    >>> @joined("com.example.docs/paid", after=timedelta(minutes=30), functions=StatefulFunctions())
    ... def ship(ctx: Context, order: Order, payment: Payment) -> None:
    ...     ctx.send(Address("com.example.docs/shipping", ctx.address.id), order.item)
    >>> @ship.on_unmatched
    ... def remind(ctx: Context, order: Order) -> None:
    ...     ctx.send(Address("com.example.docs/reminders", ctx.address.id), order.item)
    """
    durations = {"before": before, "after": after, "grace": grace}
    options = {"on_failure": on_failure, "timeout": timeout, "renamed_from": renamed_from}
    return _decorator(IntervalCalls, typename, durations, late, options, functions)


def joined_as_of(  # noqa: PLR0913 - each is a property of a function
    typename: str,
    *,
    within: timedelta,
    grace: timedelta = timedelta(0),
    late: OnFailure | str = OnFailure.SKIP,
    on_failure: FailurePolicy | str | None = None,
    timeout: timedelta | None = DEFAULT_TIMEOUT,
    renamed_from: str | Iterable[str] | None = None,
    functions: StatefulFunctions = default_functions,
) -> Callable[[Callable[[Context, L, R], None]], JoinedFunction[L, R]]:
    """Register the decorated function, which is called with records of a stream, and what was valid at their times.

    The annotations say which two classes of values are joined. The partner of a record of the first class is the newest
    record of the second class that is not later in event time, and at most ``within`` earlier. The function is called
    when the watermark has passed the time of the first record and ``grace``: so the partner does not depend on the
    order in which the records come. ``on_unmatched`` is for values of the first class.

    Args:
        typename: ``namespace/name``, as for :func:`~statefun.function`.
        within: for how long a record of the second class is valid, at most.
        grace: as for :func:`joined`.
        late: as for :func:`joined`.
        on_failure: as for :func:`~statefun.function`.
        timeout: as for :func:`~statefun.function`.
        renamed_from: as for :func:`~statefun.function`.
        functions: the registry to which the function is added.

    Raises:
        DefinitionError: as for :func:`joined`.

    >>> from dataclasses import dataclass
    >>> from statefun import Address
    >>> @dataclass
    ... class Order:
    ...     dollars: float
    >>> @dataclass
    ... class Rate:
    ...     euros: float
    >>> @joined_as_of("com.example.docs/prices", within=timedelta(days=1), functions=StatefulFunctions())
    ... def convert(ctx: Context, order: Order, rate: Rate) -> None:
    ...     ctx.send(Address("com.example.docs/sums", "all"), order.dollars * rate.euros)
    """
    durations = {"within": within, "after": timedelta(0), "grace": grace}
    options = {"on_failure": on_failure, "timeout": timeout, "renamed_from": renamed_from}
    return _decorator(AsOfCalls, typename, durations, late, options, functions)


def _decorator(  # noqa: PLR0913, PLR0917 - what the arguments of both decorators come to
    class_: type[IntervalCalls],
    typename: str,
    durations: Mapping[str, timedelta],
    late: OnFailure | str,
    options: Mapping[str, Any],
    functions: StatefulFunctions,
) -> Callable[[Callable[[Context, L, R], None]], JoinedFunction[L, R]]:
    def decorate(fun: Callable[[Context, L, R], None]) -> JoinedFunction[L, R]:
        calls: IntervalCalls | None = None
        sides: list[tuple[Any, ...]] = []
        wake_up: Any = None
        try:
            for each, duration in durations.items():
                check_duration(f"{each} of a join", duration, may_be_zero=True)
            policy = late_policy(late)
            sides = _sides(fun)
            interval = Interval(*map(in_milliseconds, durations.values()))
            calls = class_(fun, sides[0], sides[1], interval)
            wake_up, left, right = _handlers(fun, calls)
            functions.register(typename, wake_up, [BUFFERED], **options)
            name = typename.strip()
            functions.register_handler(name, sides[0], left)
            functions.register_handler(name, sides[1], right)
            registered = functions.for_typename(name)
            functions.replace(attrs.evolve(registered, needs_event_time=True, on_late=policy))
        except DefinitionError as error:
            report(fun, error, wake_up)
            calls = None
        alone = sides if class_ is IntervalCalls else [*sides[:1], ()]
        setattr(fun, "on_unmatched", _adds_unmatched(calls, alone))  # noqa: B010 - a new attribute
        return cast("JoinedFunction[L, R]", fun)

    return decorate


def _sides(fun: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """Return the annotations of the left values and of the right values that a function joins."""
    left, right = taken_by(fun, "left value", "right value")
    if is_coroutine_function(fun):
        raise DefinitionError("a function that joins streams must not be a coroutine function")
    if type(None) in {*left, *right} or any(each in right for each in left):
        raise DefinitionError(
            "a function that joins streams takes values of two different classes, neither of which is None"
        )
    return [left, right]


def _handlers(fun: Callable[..., Any], calls: IntervalCalls) -> list[Callable[..., Any]]:
    """Return the handlers for wake-ups, for left values, and for right values."""

    def wake_up(ctx: Context, value: Any) -> None:
        calls.wake_up(ctx, value)

    def add_left(ctx: Context, value: Any) -> None:
        calls.add(ctx, value, is_left=True)

    def add_right(ctx: Context, value: Any) -> None:
        calls.add(ctx, value, is_left=False)

    return [named_after(fun, each, WAKE_UP_TYPE) for each in (wake_up, add_left, add_right)]


def _adds_unmatched(calls: IntervalCalls | None, sides: list[tuple[Any, ...]]) -> Callable[[F], F]:
    """Return a decorator that adds a handler for records that have had no partner."""

    def add(handler: F) -> F:
        if calls is None:
            return handler
        try:
            [taken] = taken_by(handler, "value")
            if is_coroutine_function(handler):
                raise DefinitionError("a handler of a join must not be a coroutine function")
            left, right = sides
            unknown = [each for each in taken if each not in left and each not in right]
            if unknown:
                raise DefinitionError(f"no stream of the join has values of {unknown[0]!r}")
            for is_left, side in ((True, left), (False, right)):
                _add_unmatched(calls.unmatched[is_left], Unmatched(handler, taken, side))
        except DefinitionError as error:
            report(handler, error)
        return handler

    return add


def _add_unmatched(present: list[Unmatched], added: Unmatched) -> None:
    """Add a handler to those of a stream, in the place of its former definition.

    Raises:
        DefinitionError: if another handler takes some of the same values.
    """
    former = definition_of(added.fun)
    present[:] = [each for each in present if definition_of(each.fun) != former]
    if any(annotation in each.annotations for each in present for annotation in added.annotations):
        raise DefinitionError(
            "the join has another handler of on_unmatched for these values already"
        )
    if added.annotations:
        present.append(added)
