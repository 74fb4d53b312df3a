# SPDX-License-Identifier: Apache-2.0
"""Registering functions under their typenames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Concatenate, cast

import attrs

from statefun.sdk.address import TypeName
from statefun.sdk.annotations import alternatives
from statefun.sdk.context import Context
from statefun.sdk.decorated import Decorated, On, P, R_co
from statefun.sdk.errors import DefinitionError, UnknownFunctionError
from statefun.sdk.failure import FailurePolicy, failure_policy
from statefun.sdk.fields import text_of_annotation
from statefun.sdk.flaws import collect
from statefun.sdk.handlers import Handler, checked_annotations, handler_of
from statefun.sdk.limits import RateLimit, check_limits
from statefun.sdk.nearest_names import suggestion
from statefun.sdk.state import plain_state_specs
from statefun.sdk.stateful_function import DEFAULT_TIMEOUT, DETACH_AFTER, StatefulFunction
from statefun.sdk.unexpected_types import text_of_taken
from statefun.sdk.value_spec import ValueSpec, check_former_names, former_names, value_specs


class StatefulFunctions:
    """A registry of functions, by typename.

    >>> functions = StatefulFunctions()
    >>> @functions.bind("com.example.fns/greeter")
    ... def greet(ctx, message):
    ...     pass
    >>> functions.for_typename("com.example.fns/greeter").fun is greet
    True
    """

    def __init__(self) -> None:
        self._functions: dict[str, StatefulFunction] = {}
        self._renamed: dict[str, StatefulFunction] = {}
        """The functions by their former typenames."""

    def register(  # noqa: PLR0913 - each is a property of a function
        self,
        typename: str,
        fun: Callable[..., Any],
        specs: Iterable[ValueSpec] | None = None,
        *,
        on_failure: FailurePolicy | str | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        detach_after: timedelta = DETACH_AFTER,
        max_in_flight: int | None = None,
        rate_limit: RateLimit | None = None,
        renamed_from: str | Iterable[str] | None = None,
    ) -> None:
        """Register ``fun`` as the function of type ``typename``.

        Args:
            typename: ``namespace/name``, or ``namespace/*`` for all functions of a namespace
                that are not registered by their own name.
            fun: a function or coroutine function of two arguments, context and message, or of
                three, the last of which is annotated with a :class:`~statefun.State`. The
                annotation of the second argument says which values the function takes, and in which
                form; without an annotation, it takes every message as a :class:`~statefun.Message`.
            specs: the values that the function keeps per address.
            on_failure: the policy for a message on which the function raises; if not given, the
                message becomes a dead letter if module.yaml declares a topic for dead letters, and
                stops the application otherwise.
            timeout: how long a call may take (default 5 minutes) before it is interrupted, which
                counts as raising ``TimeoutError``; None for no limit.
            detach_after: how long a micro-batch waits for a call of a coroutine function (default
                1 second), before it is committed without that call.
            max_in_flight: how many calls of a coroutine function a worker process runs at a time; None
                for any number.
            rate_limit: how many calls of a coroutine function a worker process may begin in a period of
                time; None for any number.
            renamed_from: the typename that the function had before, or several.

        Raises:
            DefinitionError: naming the function and its file, if an argument is ill-formed
                or the typename is already taken by another function.
        """
        try:
            name = TypeName.parse(typename)
            handler = handler_of(fun)
            present = self._functions.get(str(name))
            if present is not None and definition_of(present.fun) != definition_of(fun):
                raise DefinitionError(
                    f"{name} is already registered by {place_of_definition(present.fun)}; a typename can have only one "
                    "function, to which .on(...) adds handlers for further types"
                )
            declared = tuple(specs or ())
            by_name = value_specs([*declared, *_specs_of(handler)])
            former = _former_typenames(name, renamed_from)
            policy = failure_policy(on_failure)
            check_limits(timeout, detach_after, max_in_flight, rate_limit)
        except DefinitionError as error:
            raise DefinitionError(f"{place_of_definition(fun)}: {error.message}") from None
        function = StatefulFunction(
            name,
            (handler,),
            by_name,
            policy,
            timeout,
            declared,
            detach_after,
            max_in_flight,
            rate_limit,
            renamed_from=former,
        )
        self.replace(function)

    def register_handler(self, typename: str, takes: Sequence[Any], fun: Any) -> None:
        """Add a handler for further types of values to a registered function.

        Args:
            typename: the typename of the registered function.
            takes: the values that the handler takes: classes, other annotations or types.
            fun: the handler, a function as :meth:`register` takes it.

        Raises:
            DefinitionError: naming the function and its file, if the handler cannot take
                such values, or another handler already takes them.
            UnknownFunctionError: if no such function is registered.
        """
        present = self.for_typename(typename)
        try:
            if not takes:
                raise DefinitionError("on() needs the types of the values that the handler takes")
            members = [member for each in takes for member in alternatives(each)]
            handler = handler_of(fun, checked_annotations(members))
            first, *further = present.handlers
            # A module or notebook cell may run again, and then replaces its handlers.
            replaced_ids = {
                id(each)
                for each in further
                if definition_of(each.fun) == definition_of(fun) and _names(each) & _names(handler)
            }
            others = [first, *(each for each in further if id(each) not in replaced_ids)]
            for other in others:
                common = [each for each in other.takes if each in handler.takes]
                if common:
                    raise DefinitionError(
                        f"the handler {place_of_definition(other.fun)} already takes values of type "
                        f"{text_of_taken(common[0])}"
                    )
            specs = value_specs(present.declared)
            for spec in (each for one in (*others, handler) for each in _specs_of(one)):
                if specs.setdefault(spec.name, spec) != spec:
                    raise DefinitionError(
                        f"value {spec.name!r} is declared twice, with different types or expirations"
                    )
            check_former_names(specs)
        except DefinitionError as error:
            raise DefinitionError(f"{place_of_definition(fun)}: {error.message}") from None
        self.replace(attrs.evolve(present, handlers=(*others, handler), specs=specs))

    def bind(  # noqa: PLR0913 - each is a property of a function
        self,
        typename: str,
        specs: Iterable[ValueSpec] | None = None,
        *,
        on_failure: FailurePolicy | str | None = None,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        detach_after: timedelta = DETACH_AFTER,
        max_in_flight: int | None = None,
        rate_limit: RateLimit | None = None,
        renamed_from: str | Iterable[str] | None = None,
    ) -> Callable[
        [Callable[Concatenate[Context, P], R_co]], Decorated[Concatenate[Context, P], R_co]
    ]:
        """Return a decorator that registers a function and leaves it as it is.

        The function gets an attribute ``on``, with which handlers for values of further types
        are added; see :func:`~statefun.function`.
        """

        def decorate(
            fun: Callable[Concatenate[Context, P], R_co],
        ) -> Decorated[Concatenate[Context, P], R_co]:
            try:
                self.register(
                    typename,
                    fun,
                    specs,
                    on_failure=on_failure,
                    timeout=timeout,
                    detach_after=detach_after,
                    max_in_flight=max_in_flight,
                    rate_limit=rate_limit,
                    renamed_from=renamed_from,
                )
            except DefinitionError as error:
                if not collect(fun, error):
                    raise
                fun.on = lambda *_: lambda other: other  # type: ignore[attr-defined] # so that the program loads on, to its other flaws
                return cast("Decorated[Concatenate[Context, P], R_co]", fun)
            earlier = getattr(fun, "on", None)
            if isinstance(earlier, On | None):
                with suppress(AttributeError, TypeError):  # not every object takes attributes
                    on = On(partial(self.register_handler, typename.strip()), earlier)
                    fun.on = on  # type: ignore[attr-defined] # a new attribute
            return cast("Decorated[Concatenate[Context, P], R_co]", fun)

        return decorate

    def add(self, function: StatefulFunction) -> None:
        """Add a :class:`StatefulFunction`, such as one behind an endpoint.

        Raises:
            DefinitionError: if its typename is already taken.
        """
        if str(function.typename) in self._functions:
            raise DefinitionError(f"{function.typename} is already registered")
        self.replace(function)

    def replace(self, function: StatefulFunction) -> None:
        """Add a :class:`StatefulFunction`; it replaces a registered function with the same typename."""
        self._functions[str(function.typename)] = function
        self._find_renamed()

    def _find_renamed(self) -> None:
        self._renamed = {former: each for each in self for former in each.renamed_from}

    def find(self, typename: str) -> StatefulFunction | None:
        """Return the function whose present or former typename is ``typename``; None if there is none.

        A present name has priority over a former one, and an exact name over ``namespace/*``.
        """
        exact = self._functions.get(typename) or self._renamed.get(typename)
        return exact or self._functions.get(f"{typename.rpartition('/')[0]}/*")

    def stored_name(self, typename: str) -> str:
        """Return the typename with which a checkpoint stores state and messages of a function's addresses."""
        function = self.find(typename)
        return (
            typename if function is None or function.typename.name == "*" else function.stored_name
        )

    def for_typename(self, typename: str) -> StatefulFunction:
        """Return the function of a typename.

        Raises:
            UnknownFunctionError: if no such function is registered; the text ends with a :meth:`hint`.
        """
        present = self.find(typename)
        if present is None:
            raise UnknownFunctionError(f"no function {typename} is registered{self.hint(typename)}")
        return present

    def hint(self, typename: str) -> str:
        """Return a hint for an error text: the registered name most similar to ``typename``, or all names."""
        if meant := suggestion(typename, self._functions):
            return f"; {meant}"
        return f" (registered: {', '.join(sorted(self._functions)) or 'none'})"

    def copy(self) -> StatefulFunctions:
        """Return a new registry with the same functions; functions added to it are not added to this one."""
        copied = StatefulFunctions()
        copied._functions |= self._functions
        copied._find_renamed()
        return copied

    def forget(self, module: str) -> None:
        """Remove the functions that a module has registered."""
        for typename, function in list(self._functions.items()):
            if function.handlers and definition_of(function.fun)[0] == module:
                del self._functions[typename]
        self._find_renamed()

    def remove(self, typename: str) -> None:
        """Remove the function that is registered as ``typename``."""
        del self._functions[typename]
        self._find_renamed()

    def __bool__(self) -> bool:
        """Return True, even if the registry is empty: the program may register functions later."""
        return True

    def __iter__(self) -> Iterator[StatefulFunction]:
        return iter(self._functions.values())

    def __len__(self) -> int:
        return len(self._functions)


default_functions = StatefulFunctions()
"""The process's registry, which :func:`function` adds to."""


def function(  # noqa: PLR0913 - each is a property of a function
    typename: str,
    specs: Iterable[ValueSpec] | None = None,
    *,
    on_failure: FailurePolicy | str | None = None,
    timeout: timedelta | None = DEFAULT_TIMEOUT,
    detach_after: timedelta = DETACH_AFTER,
    max_in_flight: int | None = None,
    rate_limit: RateLimit | None = None,
    renamed_from: str | Iterable[str] | None = None,
    functions: StatefulFunctions = default_functions,
) -> Callable[[Callable[Concatenate[Context, P], R_co]], Decorated[Concatenate[Context, P], R_co]]:
    """Register the decorated function, which stays as it is, under ``typename``.

    Args:
        typename: ``namespace/name``, as module.yaml and messages name it.
        specs: the values that the function keeps per address.
        on_failure: the policy for a message on which the function raises: ``"fail"``,
            ``"skip"``, ``"dead-letter"`` or a :class:`~statefun.Retry`. If not given,
            the message becomes a dead letter if module.yaml declares a topic for dead letters, and
            stops the application otherwise.
        timeout: how long a call may take (default 5 minutes); None for no limit. A call that takes
            longer is interrupted, which counts as raising ``TimeoutError``: a coroutine is
            cancelled; a plain function is interrupted by the signal ``SIGALRM`` while it runs
            Python code or sleeps, but not while code of another language runs. A warning is
            logged when half of the timeout is over, at most once in 10 seconds for each function and worker.
        detach_after: how long a micro-batch waits for a call of a coroutine function (default 1
            second). A call that takes longer goes on, while the micro-batch is committed without it;
            its effects come with a later micro-batch.
        max_in_flight: how many calls of a coroutine function a worker process runs at a time; None for any
            number. The limit protects a service that many addresses call.
        rate_limit: how many calls of a coroutine function a worker process may begin in a period, such as
            ``RateLimit(100, per=timedelta(seconds=1), resource="payments")``; None for any number.
        renamed_from: the typename that the function had before, or several. The function takes over their state,
            pending messages and timers, and gets all messages that are sent to them.
        functions: the registry to which the function is added.

    Raises:
        DefinitionError: naming the function and its file, if the typename, signature or specs
            are ill-formed, or the typename is already taken.

    >>> from statefun import IntType
    >>> @function("com.example.docs/counter", specs=[ValueSpec("count", IntType)])
    ... def count(ctx, message):
    ...     ctx.storage.count = (ctx.storage.count or 0) + 1

    Annotations say which values a function takes, and what it stores; ``on`` adds handlers:

    >>> from statefun import State
    >>> class Basket(State):
    ...     items: int = 0
    >>> @function("com.example.docs/basket")
    ... def add(ctx: Context, count: int, basket: Basket) -> None:
    ...     basket.items += count
    >>> @add.on(str)
    ... def command(ctx: Context, text: str, basket: Basket) -> None:
    ...     if text == "empty":
    ...         del basket.items
    """
    return functions.bind(
        typename,
        specs,
        on_failure=on_failure,
        timeout=timeout,
        detach_after=detach_after,
        max_in_flight=max_in_flight,
        rate_limit=rate_limit,
        renamed_from=renamed_from,
    )


def _specs_of(handler: Handler) -> Sequence[ValueSpec]:
    return () if handler.state is None else plain_state_specs(handler.state)


def _former_typenames(name: TypeName, renamed_from: str | Iterable[str] | None) -> tuple[str, ...]:
    names = former_names(renamed_from)
    parsed = [TypeName.parse(each) for each in names]
    if "*" in {name.name, *(each.name for each in parsed)} and names:
        raise DefinitionError(
            f"renamed_from names single functions: neither {name} nor {', '.join(names)} may be all functions "
            "of a namespace"
        )
    if name in parsed or len({*parsed}) < len(parsed):
        raise DefinitionError(
            f"renamed_from must be other typenames than {name}, each named once, not {names!r}"
        )
    return tuple(map(str, parsed))


def _names(handler: Handler) -> set[str]:
    """Return the names of the types that a handler takes; unlike classes, they stay equal if a module runs again."""
    return set(map(text_of_annotation, handler.takes))


def definition_of(fun: Any) -> tuple[str | None, str]:
    """Return a function's module and name, which stay equal when a module or notebook cell runs again."""
    return getattr(fun, "__module__", None), getattr(fun, "__qualname__", repr(fun))


def place_of_definition(fun: Any) -> str:
    """Return the name of a function, with its file and line if they are known."""
    code = getattr(fun, "__code__", None)
    name = getattr(fun, "__qualname__", repr(fun))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
