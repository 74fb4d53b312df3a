# SPDX-License-Identifier: Apache-2.0
"""Registering functions under their typenames."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import attrs

from statefun.sdk.address import TypeName
from statefun.sdk.context import Context
from statefun.sdk.errors import DefinitionError, UnknownFunctionError
from statefun.sdk.failure import FailurePolicy, failure_policy
from statefun.sdk.message import Message
from statefun.sdk.storage import ValueSpec, value_specs

UserFunction = Callable[[Context, Message], None] | Callable[[Context, Message], Awaitable[None]]
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_TIMEOUT = timedelta(minutes=5)
"""How long a call of a function may take, unless its registration sets another timeout."""


class StorageSpec(NamedTuple):
    """The values that a function keeps per address."""

    names: frozenset[str]
    specs: tuple[ValueSpec, ...]
    """In the order of their declaration."""


@attrs.frozen
class StatefulFunction:
    """A registered function."""

    typename: TypeName
    """Its type; the name ``*`` stands for every function of the namespace."""
    call: Callable[[Context, Message], Any]
    """The user's function."""
    specs: Mapping[str, ValueSpec]
    """The values it keeps, by name."""
    is_async: bool
    """Whether a call returns an awaitable."""
    on_failure: FailurePolicy | None = None
    """The policy for messages that it fails to handle; None: the runtime's default."""
    timeout: timedelta | None = DEFAULT_TIMEOUT
    """How long a call may take; None for any time."""
    expiring: tuple[ValueSpec, ...] = attrs.field(init=False)
    """The values that expire."""

    @expiring.default
    def _find_expiring(self) -> tuple[ValueSpec, ...]:
        return tuple(
            spec
            for spec in self.specs.values()
            if spec.expire_after_call or spec.expire_after_write
        )

    @property
    def fun(self) -> Callable[[Context, Message], Any]:
        """The user's function."""
        return self.call

    @property
    def storage_spec(self) -> StorageSpec:
        """The values it keeps."""
        return StorageSpec(frozenset(self.specs), tuple(self.specs.values()))


class StatefulFunctions:
    """A set of functions by typename.

    >>> functions = StatefulFunctions()
    >>> @functions.bind("com.example.fns/greeter")
    ... def greet(ctx, message):
    ...     pass
    >>> functions.for_typename("com.example.fns/greeter").call is greet
    True
    """

    def __init__(self) -> None:
        self._functions: dict[str, StatefulFunction] = {}

    def register(
        self,
        typename: str,
        fun: UserFunction,
        specs: Iterable[ValueSpec] | None = None,
        *,
        on_failure: FailurePolicy | str | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Register ``fun`` as the function of type ``typename``.

        Args:
            typename: ``namespace/name``, or ``namespace/*`` for all functions of a namespace
                that are not registered by their own name.
            fun: a function or coroutine function of exactly two arguments, context and message.
            specs: the values that the function keeps per address.
            on_failure: the policy for a message on which the function raises; if not given, it
                becomes a dead letter where module.yaml declares a topic for them, and stops the
                application where it does not.
            timeout: how long a call may take (default 5 minutes) before it is interrupted, which
                counts as raising ``TimeoutError``; None for any time.

        Raises:
            DefinitionError: naming the function and its file, if an argument is ill-formed
                or the typename is already taken by another function.
        """
        try:
            name = TypeName.parse(typename)
            call = _checked(fun)
            known = self._functions.get(str(name))
            if known is not None and _definition(known.call) != _definition(call):
                raise DefinitionError(
                    f"{name} is already registered by {_place(known.call)}; a typename has one "
                    "function"
                )
            by_name = value_specs(specs or ())
            policy = failure_policy(on_failure)
            _check_timeout(timeout)
        except DefinitionError as error:
            raise DefinitionError(f"{_place(fun)}: {error.message}") from None
        is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
            getattr(call, "__call__", None)  # noqa: B004 - an instance with an async __call__
        )
        self._functions[str(name)] = StatefulFunction(
            name, call, by_name, is_async, policy, timeout
        )

    def bind(
        self,
        typename: str,
        specs: Iterable[ValueSpec] | None = None,
        *,
        on_failure: FailurePolicy | str | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
    ) -> Callable[[F], F]:
        """Return a decorator that registers a function and leaves it as it is."""

        def decorate(fun: F) -> F:
            self.register(typename, fun, specs, on_failure=on_failure, timeout=timeout)
            return fun

        return decorate

    def find(self, typename: str) -> StatefulFunction | None:
        """Return the function of that type, or None; an exact name wins over ``namespace/*``."""
        exact = self._functions.get(typename)
        return exact or self._functions.get(f"{typename.rpartition('/')[0]}/*")

    def for_typename(self, typename: str) -> StatefulFunction:
        """Return the function of that type.

        Raises:
            UnknownFunctionError: if there is none, with the nearest name that is registered.
        """
        found = self.find(typename)
        if found is None:
            raise UnknownFunctionError(f"no function {typename} is registered{self.hint(typename)}")
        return found

    def hint(self, typename: str) -> str:
        """Return a hint: the registered name that is nearest to ``typename``, or all names."""
        near = difflib.get_close_matches(typename, self._functions, n=1)
        if near:
            return f"; did you mean {near[0]}?"
        return f" (registered: {', '.join(sorted(self._functions)) or 'none'})"

    def __bool__(self) -> bool:
        """Be true, also without functions: they may still come."""
        return True

    def __iter__(self) -> Iterator[StatefulFunction]:
        return iter(self._functions.values())

    def __len__(self) -> int:
        return len(self._functions)


default_functions = StatefulFunctions()
"""The process's registry, which :func:`function` adds to."""


def function(
    typename: str,
    specs: Iterable[ValueSpec] | None = None,
    *,
    on_failure: FailurePolicy | str | None = None,
    timeout: timedelta | None = DEFAULT_TIMEOUT,
    functions: StatefulFunctions = default_functions,
) -> Callable[[F], F]:
    """Register the decorated function, which stays as it is, under ``typename``.

    Args:
        typename: ``namespace/name``, as module.yaml and messages name it.
        specs: the values that the function keeps per address.
        on_failure: the policy for a message on which the function raises: ``"fail"``,
            ``"skip"``, ``"dead-letter"`` or a :class:`~statefun.Retry`. If not given, it becomes
            a dead letter where module.yaml declares a topic for them, and stops the application
            where it does not.
        timeout: how long a call may take (default 5 minutes); None for any time. A call that takes
            longer is interrupted, which counts as raising ``TimeoutError``: a coroutine is
            cancelled, and a plain function interrupted by the signal ``SIGALRM`` as soon as it
            runs Python code, or waits in it. At half of the time a warning is logged.
        functions: the registry to add to.

    Raises:
        DefinitionError: naming the function and its file, if the typename, signature or specs
            are ill-formed, or the typename is already taken.

    >>> from statefun import IntType
    >>> @function("com.example.docs/counter", specs=[ValueSpec("count", IntType)])
    ... def count(ctx, message):
    ...     ctx.storage.count = (ctx.storage.count or 0) + 1
    """
    return functions.bind(typename, specs, on_failure=on_failure, timeout=timeout)


def _checked(fun: Any) -> Callable[[Context, Message], Any]:
    if not callable(fun):
        raise DefinitionError(f"{fun!r} is not a function")
    try:
        inspect.signature(fun).bind(None, None)
    except TypeError:
        raise DefinitionError(
            "a stateful function takes exactly two arguments, (context, message); its signature "
            f"is {inspect.signature(fun)}"
        ) from None
    if inspect.isgeneratorfunction(fun) or inspect.isasyncgenfunction(fun):
        raise DefinitionError("a stateful function sends with ctx.send, and does not yield")
    call: Callable[[Context, Message], Any] = fun
    return call


def _check_timeout(timeout: object) -> None:
    if not (timeout is None or (isinstance(timeout, timedelta) and timeout > timedelta(0))):
        raise DefinitionError(f"a timeout is a positive timedelta or None, not {timeout!r}")


def _definition(fun: Any) -> tuple[str | None, str]:
    """Return a function's module and name, which stay equal when a module or cell runs again."""
    return getattr(fun, "__module__", None), getattr(fun, "__qualname__", repr(fun))


def _place(fun: Any) -> str:
    code = getattr(fun, "__code__", None)
    name = getattr(fun, "__qualname__", repr(fun))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
