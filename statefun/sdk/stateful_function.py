# SPDX-License-Identifier: Apache-2.0
"""Registered functions: handlers, values, failure policy and timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.sdk.address import Address, TypeName
from statefun.sdk.context import Context
from statefun.sdk.executing_modules import executing_modules
from statefun.sdk.failure import FailurePolicy, OnFailure
from statefun.sdk.handlers import AsyncHandlers, Handler, Handlers
from statefun.sdk.invocation_batch import Transport
from statefun.sdk.limits import RateLimit
from statefun.sdk.message import Message
from statefun.sdk.types import Type
from statefun.sdk.value_spec import Expiration, ValueSpec, present_names

DEFAULT_TIMEOUT = timedelta(minutes=5)
"""How long a function may take for a message, unless its registration sets another timeout."""
DETACH_AFTER = timedelta(seconds=1)
"""How long a micro-batch waits for a call, unless the function's registration sets another time."""


class StorageSpec(NamedTuple):
    """The declarations of the values that a function keeps per address."""

    names: frozenset[str]
    """The names of the values."""
    specs: list[ValueSpec]
    """The declarations, in their order."""

    @classmethod
    def of(cls, specs: Mapping[str, ValueSpec]) -> StorageSpec:
        """Make a storage spec from the declarations of values, which ``specs`` has by name."""
        return cls(frozenset(specs), list(specs.values()))


@attrs.frozen
class StatefulFunction:
    """A registered function."""

    typename: TypeName
    """The typename of the function; the name ``*`` stands for every function of the namespace."""
    handlers: tuple[Handler, ...]
    """The user's Python functions: the first one, and others that handle values of further types."""
    specs: Mapping[str, ValueSpec]
    """The declarations of the values that the function stores, by name."""
    on_failure: FailurePolicy | None = None
    """The policy for messages on which the function fails; None: the application's default."""
    timeout: timedelta | None = DEFAULT_TIMEOUT
    """How long the function may take for a message, or its endpoint for a call; None for no limit."""
    declared: tuple[ValueSpec, ...] = ()
    """The values that the registration itself declares, without those of the handlers' state classes."""
    detach_after: timedelta = DETACH_AFTER
    """How long a micro-batch waits for a call of a coroutine function before the call leaves it."""
    max_in_flight: int | None = None
    """How many calls of the function a worker process runs at a time; None for any number."""
    rate_limit: RateLimit | None = None
    """How many calls of the function a worker process may begin in a period of time; None for no limit."""
    transport: Transport | None = None
    """Calls the function if it is behind an endpoint; None for a function of the program.

    A function behind an endpoint has no handlers here, and declares its values in replies."""
    renamed_from: tuple[str, ...] = ()
    """The typenames that the function had before; messages to them are messages to the function."""
    stored_as: str = ""
    """The former typename with which a checkpoint stores state and messages; empty if it is the present one."""
    needs_event_time: bool = False
    """Whether the function has windows or joins streams, so that its messages need event times."""
    publishes_to: TypeName | None = None
    """The Kafka egress to which the function publishes its rows, if it is a table that publishes rows."""
    on_late: OnFailure | None = None
    """The policy for messages that are late."""
    decoder: Handlers | None = None
    """Has the user's handlers if ``handlers`` is an object that calls them, such as that of windows; otherwise None."""
    modules: tuple[str, ...] = attrs.field(factory=executing_modules, eq=False)
    """The names of the modules whose code has registered the function."""
    call: Callable[[Context, Message], Any] = attrs.field(init=False)
    """The callable that handles a message; its arguments are the context and the message."""
    is_async: bool = attrs.field(init=False)
    """Whether ``call`` returns an awaitable, or a transport calls the function."""
    expiring: tuple[Expiration, ...] = attrs.field(init=False)
    """Which values expire, and after which time."""
    renamed_values: Mapping[str, str] = attrs.field(init=False)
    """The present names of the values that were renamed, by their former names."""

    @is_async.default
    def _has_coroutine(self) -> bool:
        return self.transport is not None or any(handler.is_async for handler in self.handlers)

    @call.default
    def _make_call(self) -> Callable[[Context, Message], Any]:
        if self.transport is not None:
            return _call_elsewhere
        first = self.handlers[0]
        if len(self.handlers) == 1 and first.is_plain:
            return first.fun
        kind = AsyncHandlers if any(each.is_async for each in self.handlers) else Handlers
        return kind(self.handlers)

    @expiring.default
    def _find_expiring(self) -> tuple[Expiration, ...]:
        expirations = [spec.expiration for spec in self.specs.values()]
        return tuple(each for each in expirations if each is not None)

    @renamed_values.default
    def _find_renamed(self) -> Mapping[str, str]:
        return present_names(self.specs)

    @property
    def stored_name(self) -> str:
        """The typename with which a checkpoint stores state and messages of the function."""
        return self.stored_as or str(self.typename)

    def address(self, id_: str) -> Address:
        """Return the address with an id; the function must not stand for a whole namespace."""
        return Address(str(self.typename), id_)

    @property
    def elsewhere(self) -> Transport:
        """The transport of the function, which must be behind an endpoint."""
        if self.transport is None:
            raise AssertionError(f"function {self.typename} is not behind an endpoint")
        return self.transport

    @property
    def runs_anywhere(self) -> bool:
        """Whether this is a plain function without state, so that each task can call it for any address."""
        return not self.specs and not self.is_async

    @property
    def fun(self) -> Callable[..., Any]:
        """The user's Python function, or the first one if there are several."""
        return self.handlers[0].fun

    @property
    def is_typed(self) -> bool:
        """Whether a handler declares the type of the values that it handles, or a state class."""
        return isinstance(self.call, Handlers)

    def takes(self, typename: str) -> bool:
        """Return whether one of the function's handlers takes values of a type.

        Raises:
            DefinitionError: if two handlers take the same type.
        """
        return not isinstance(self.call, Handlers) or self.call.takes(typename)

    def advice(self, typename: str) -> str:
        """Return which values the handlers take, and how they can take others; empty if they take all values."""
        return self.call.advice(typename) if isinstance(self.call, Handlers) else ""

    def type_of(self, typename: str) -> Type[Any] | None:
        """Return the type that decodes values with a typename for the function's handlers; None if none does."""
        handlers = self.decoder or self.call
        return handlers.type_of(typename) if isinstance(handlers, Handlers) else None

    @property
    def annotations(self) -> Iterator[Any]:
        """The values that the user's handlers take, as annotations or types."""
        handlers = self.handlers if self.decoder is None else self.decoder.handlers
        return (each for handler in handlers for each in handler.takes)

    def typenames(self) -> list[str]:
        """Return the typenames of the values that the function's handlers decode, and of those that it stores."""
        taken = self.call.typenames() if isinstance(self.call, Handlers) else []
        return [*taken, *(spec.type.typename for spec in self.specs.values())]

    def decode(self, typename: str, content: bytes) -> Any:
        """Decode a value for the handler that takes it; return the bytes if no handler decodes them."""
        return self.call.decode(typename, content) if isinstance(self.call, Handlers) else content

    @property
    def storage_spec(self) -> StorageSpec:
        """The declarations of the values that the function stores."""
        return StorageSpec.of(self.specs)


def _call_elsewhere(_context: Context, _message: Message) -> None:
    raise AssertionError("a function behind an endpoint must be called by its transport")
