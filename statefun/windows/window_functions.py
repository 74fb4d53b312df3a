# SPDX-License-Identifier: Apache-2.0
"""Registering functions with windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, cast, overload

import attrs

from statefun.sdk.errors import DefinitionError
from statefun.sdk.failure import FailurePolicy, OnFailure, late_policy
from statefun.sdk.flaws import collect
from statefun.sdk.functions import (
    StatefulFunctions,
    default_functions,
    definition_of,
    place_of_definition,
)
from statefun.sdk.handlers import handler_of
from statefun.sdk.state import state_specs
from statefun.sdk.stateful_function import DEFAULT_TIMEOUT
from statefun.sdk.times import check_duration, in_milliseconds
from statefun.windows.counted_windows import COUNTED_WINDOW, CountedWindows
from statefun.windows.open_windows import OPEN_WINDOWS
from statefun.windows.pane_windows import PaneWindows
from statefun.windows.separate_windows import SeparateWindows
from statefun.windows.window_calls import WindowCalls
from statefun.windows.window_context import WindowContext
from statefun.windows.window_kinds import (
    Counted,
    Hopping,
    Session,
    Sliding,
    WindowKind,
)
from statefun.windows.window_state import Window

V = TypeVar("V")
W = TypeVar("W", bound=Window)
OfWindow = TypeVar("OfWindow", bound=Callable[..., Any])


class WindowedFunction(Protocol[V, W]):
    """A function with windows: the user's function, with attributes that add its other handlers."""

    def __call__(self, ctx: WindowContext, value: V, window: W, /) -> None:
        """Call the function."""

    def on_close(
        self, fun: Callable[[WindowContext, W], None], /
    ) -> Callable[[WindowContext, W], None]:
        """Add the function that is called once when a window closes; its values are deleted afterwards."""

    @overload
    def on_update(
        self, fun: Callable[[WindowContext, W], None], /
    ) -> Callable[[WindowContext, W], None]: ...

    @overload
    def on_update(
        self, /, *, every: timedelta
    ) -> Callable[[Callable[[WindowContext, W], None]], Callable[[WindowContext, W], None]]: ...

    def on_update(self, fun: Any = None, /, *, every: timedelta | None = None) -> Any:
        """Add a function that is called with a window as it is before it closes: an early result.

        ``@add.on_update`` is called after each message of a window. ``@add.on_update(every=timedelta(minutes=1))``
        is called when the watermark has come to the next full minute, for each open window that has changed since.
        """

    def on_late(
        self, fun: Callable[[WindowContext, V], None], /
    ) -> Callable[[WindowContext, V], None]:
        """Add a function that is called for each closed window of a late message, in place of the policy ``late``.

        ``ctx.window`` is the closed window, and ``ctx.lateness`` says by how much the message is late.
        """


def windowed(  # noqa: PLR0913 - each is a property of a function
    typename: str,
    kind: WindowKind,
    *,
    time: Callable[[Any], datetime] | None = None,
    late: OnFailure | str = OnFailure.SKIP,
    on_failure: FailurePolicy | str | None = None,
    timeout: timedelta | None = DEFAULT_TIMEOUT,
    renamed_from: str | Iterable[str] | None = None,
    functions: StatefulFunctions = default_functions,
) -> Callable[[Callable[[WindowContext, V, W], None]], WindowedFunction[V, W]]:
    """Register the decorated function, which collects the messages of each address in windows of event time.

    Args:
        typename: ``namespace/name``, as for :func:`~statefun.function`.
        kind: which windows there are: :class:`Tumbling`, :class:`Hopping`, :class:`Sliding`, :class:`Session` or
            :class:`Counted`.
        time: returns the event time of a value, which decides to which windows the value belongs; by default, it is
            the event time of the message.
        late: the policy for a message whose window is closed: ``"skip"`` (default) drops and counts it,
            ``"dead-letter"`` writes it to the dead-letter topic, and ``"fail"`` stops the application.
        on_failure: as for :func:`~statefun.function`.
        timeout: as for :func:`~statefun.function`.
        renamed_from: as for :func:`~statefun.function`.
        functions: the registry to which the function is added.

    Raises:
        DefinitionError: naming the function and its file, if an argument is ill-formed, or the function does not take
            a context, a value and a :class:`Window`, or is a coroutine function.

    >>> from datetime import timedelta
    >>> from statefun import KafkaEgressMessage, StatefulFunctions
    >>> from statefun.windows import Tumbling, Window, WindowContext
    >>> class Clicks(Window):
    ...     count: int = 0
    >>> registry = StatefulFunctions()
    >>> @windowed("com.example.docs/clicks", Tumbling(timedelta(minutes=5)), functions=registry)
    ... def add(ctx: WindowContext, url: str, clicks: Clicks) -> None:
    ...     clicks.count += 1
    >>> @add.on_close
    ... def close(ctx: WindowContext, clicks: Clicks) -> None:
    ...     text = f"{ctx.window.start:%H:%M}: {clicks.count}"
    ...     ctx.send(KafkaEgressMessage("com.example/out", topic="clicks", key=ctx.address.id, value=text))
    """

    def decorate(fun: Callable[[WindowContext, V, W], None]) -> WindowedFunction[V, W]:
        calls: WindowCalls | None = None
        try:
            calls = _calls(fun, kind, time)
            policy = late_policy(late)
        except DefinitionError as error:
            _report(fun, error)
        else:
            functions.bind(
                typename,
                [OPEN_WINDOWS, COUNTED_WINDOW],
                on_failure=on_failure,
                timeout=timeout,
                renamed_from=renamed_from,
            )(cast("Any", calls))
            registered = functions.find(typename.strip())
            if registered is not None and registered.fun is calls:
                functions.replace(
                    attrs.evolve(
                        registered, needs_event_time=True, on_late=policy, decoder=calls.decoder
                    )
                )
        return _with_handlers(fun, calls)

    return decorate


def _report(fun: Any, error: DefinitionError) -> None:
    """Report an error in the definition of a function, with its place: collect it with others, or raise it."""
    placed = DefinitionError(f"{place_of_definition(fun)}: {error.message}")
    if not collect(fun, placed):
        raise placed from None


def _calls(
    fun: Callable[..., Any], kind: WindowKind, time: Callable[[Any], datetime] | None
) -> WindowCalls:
    if not isinstance(kind, WindowKind):
        raise DefinitionError(
            f"the kind of the windows must be Tumbling, Hopping, Sliding, Session or Counted, not {kind!r}"
        )
    handler = handler_of(fun)
    if handler.is_async:
        raise DefinitionError("a function with windows must not be a coroutine function")
    if handler.state is None or not issubclass(handler.state, Window):
        raise DefinitionError(
            "a handler of windows must have a third parameter that is annotated with a Window"
        )
    can_merge = callable(getattr(handler.state, "merge", None))
    if isinstance(kind, Session | Sliding) and not can_merge:
        reason = (
            "as sessions may be joined" if isinstance(kind, Session) else "as windows share records"
        )
        raise DefinitionError(
            f"{handler.state.__name__} needs a method merge(self, later), {reason}"
        )
    for spec in state_specs(handler.state):
        if spec.expiration is not None:
            raise DefinitionError(
                f"value {spec.name!r} of {handler.state.__name__} must not expire: it is deleted when its window closes"
            )
        if spec.secret:
            raise DefinitionError(
                f"value {spec.name!r} of {handler.state.__name__} must not be declared with secret=True: annotate it "
                "with a secret_type, which is secret wherever it is stored"
            )
    if isinstance(kind, Counted):
        return CountedWindows(handler, kind, time)
    if isinstance(kind, Sliding) or (isinstance(kind, Hopping) and can_merge):
        return PaneWindows(handler, kind, time)
    return SeparateWindows(handler, kind, time)


def _with_handlers(
    fun: Callable[[WindowContext, V, W], None], calls: WindowCalls | None
) -> WindowedFunction[V, W]:
    """Give a function the attributes that add its handlers."""

    def on_update(handler: Any = None, /, *, every: timedelta | None = None) -> Any:
        adds = _Adds(calls, "update", every)
        return adds if handler is None else adds(handler)

    for name, adds in (("close", _Adds(calls, "close")), ("late", _Adds(calls, "late"))):
        setattr(fun, f"on_{name}", adds)
    setattr(fun, "on_update", on_update)  # noqa: B010 - as above
    return cast("WindowedFunction[V, W]", fun)


class _Adds:
    """Adds a handler to a function with windows.

    Args:
        calls: the object that is registered for the function; None if the function was refused.
        name: what the handler is for: ``close``, ``update`` or ``late``.
        every: the event time between two calls of the handler; None for a call after each message.
    """

    def __init__(
        self, calls: WindowCalls | None, name: str, every: timedelta | None = None
    ) -> None:
        self._calls, self._name, self._every = calls, name, every

    def __call__(self, handler: OfWindow) -> OfWindow:
        """Add the handler, and return it as it is."""
        if self._calls is not None:
            try:
                self._add(handler, self._calls)
            except DefinitionError as error:
                _report(handler, error)
        return handler

    def _add(self, handler: Callable[..., Any], calls: WindowCalls) -> None:
        if handler_of(handler, takes=(Any,)).is_async:
            raise DefinitionError("a handler of windows must not be a coroutine function")
        present = getattr(calls, self._name)
        if present is not None and definition_of(present) != definition_of(handler):
            raise DefinitionError(f"the function has another handler of on_{self._name} already")
        if self._every is not None:
            check_duration("the interval of early results", self._every)
            if isinstance(calls, CountedWindows):
                raise DefinitionError(
                    "counted windows give no early results at intervals; leave out the argument 'every', or use windows of time"
                )
        setattr(calls, self._name, handler)
        if self._name == "update":
            calls.every = 0 if self._every is None else in_milliseconds(self._every)
