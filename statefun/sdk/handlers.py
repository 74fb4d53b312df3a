# SPDX-License-Identifier: Apache-2.0
"""Handlers with annotations: which values they take, and how messages become these values."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple, Union, cast

import attrs

from statefun.sdk.alike import are_alike
from statefun.sdk.annotations import (
    alternatives,
    automatic_type,
    parameter_annotation,
    types_of,
)
from statefun.sdk.call_context import context_values
from statefun.sdk.callables import is_coroutine_function, refuse_coroutine, yields
from statefun.sdk.context import Context
from statefun.sdk.errors import DefinitionError, FunctionError, UnexpectedValueError
from statefun.sdk.fields import has_fields, is_class, is_typed_dict
from statefun.sdk.message import Message, does_not_decode
from statefun.sdk.state import State, attached, write_changes
from statefun.sdk.types import Type, default_types
from statefun.sdk.unexpected_types import cure, text_of_taken

_ANYTHING = (Any, object, Message)
"""The annotations of a parameter that takes each message as a :class:`Message`, not decoded."""
_FREE = (dict, Mapping, MutableMapping, object, type(None))
"""Classes of values with names of any fields, and of no value."""
_WITHOUT_STATE = 2
_WITH_STATE = 3


@attrs.frozen
class Handler:
    """A user's function that handles some of the messages of a function type."""

    fun: Callable[..., Any]
    takes: tuple[Any, ...]
    """The values that the handler takes, as annotations or types."""
    state: type[State] | None
    is_async: bool

    @property
    def is_plain(self) -> bool:
        """Whether the handler takes undecoded messages and no state, so that it can be called directly."""
        return self.state is None and _take_anything(self.takes)


def handler_of(fun: Any, takes: Iterable[Any] = ()) -> Handler:
    """Make a handler of a function, by the function's signature.

    Args:
        fun: a function or coroutine function with the parameters context, message or value, and
            optionally state.
        takes: the values that the handler takes; if empty, the annotation of the second parameter
            of ``fun`` says which.

    Raises:
        DefinitionError: naming the parameter, if the function does not have such a signature.
    """
    if not callable(fun):
        raise DefinitionError(f"{fun!r} is not a function")
    if yields(fun):
        raise DefinitionError("a stateful function must not yield; it sends messages with ctx.send")
    signature = _signature(fun)
    parameters = list(signature.parameters.values())
    state = None
    if len(parameters) >= _WITH_STATE and _can_bind(signature, _WITH_STATE):
        state = _state_class(fun, parameters[_WITH_STATE - 1])
    if state is None and not _can_bind(signature, _WITHOUT_STATE):
        raise DefinitionError(
            "a stateful function must take exactly two arguments, (context, message), or three, the "
            f"last of which is annotated with a class of values, a State; its signature is {signature}"
        )
    annotations = tuple(takes) or _second_annotations(fun, parameters)
    return Handler(fun, annotations, state, is_coroutine_function(fun))


def _signature(fun: Any) -> inspect.Signature:
    """Return a function's signature; for a wrapper with ``*args``, that of the wrapped function."""
    own = inspect.signature(fun, follow_wrapped=False)
    first = list(own.parameters.values())[:_WITHOUT_STATE]
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in first):
        return inspect.signature(fun)
    return own


def _can_bind(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _state_class(fun: Any, parameter: inspect.Parameter) -> type[State] | None:
    """Return the state class of a third parameter.

    The result is None if the parameter has a default and is not annotated with a state class.
    """
    annotation = _annotation(fun, parameter)
    if is_class(annotation) and issubclass(annotation, State):
        state: type[State] = annotation
        return state
    if any(is_class(each) and issubclass(each, State) for each in alternatives(annotation)):
        raise DefinitionError(
            f"parameter {parameter.name}: a state is never None; annotate the parameter with the "
            "state class alone"
        )
    if parameter.default is inspect.Parameter.empty and parameter.kind not in {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
    }:
        raise DefinitionError(
            f"parameter {parameter.name}: the third parameter of a stateful function must be annotated "
            f"with a subclass of State, not with {text_of_taken(annotation)}"
        )
    return None


def _second_annotations(fun: Any, parameters: list[inspect.Parameter]) -> tuple[Any, ...]:
    """Return the annotation of the second parameter, or the members of that annotation if it is a union."""
    if len(parameters) < _WITHOUT_STATE:  # *args
        return (Message,)
    parameter = parameters[1]
    if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return (Message,)
    annotation = _annotation(fun, parameter)
    try:
        return checked_annotations(alternatives(annotation))
    except DefinitionError as error:
        raise DefinitionError(f"parameter {parameter.name}: {error.message}") from error


def _annotation(fun: Any, parameter: inspect.Parameter) -> Any:
    try:
        return parameter_annotation(fun, parameter)
    except Exception as error:
        raw = str(parameter.annotation)
        if raw.rpartition(".")[2] in {"Message", "Any"}:  # imported for type checkers alone
            return Message
        raise DefinitionError(
            f"parameter {parameter.name}: its annotation {raw!r} cannot be read: "
            f"{type(error).__name__}: {error}; import or define its names before the function"
        ) from error


def checked_annotations(takes: Iterable[Any]) -> tuple[Any, ...]:
    """Check the annotations or types that a handler takes, and return them.

    Raises:
        DefinitionError: if values of one of these annotations or types cannot be decoded.
    """
    annotations = tuple(takes)
    for each in annotations:
        if typing.get_origin(each) is typing.Literal:
            raise DefinitionError(
                f"a handler cannot take {text_of_taken(each)}; use the class of its values instead, "
                "such as str"
            )
    if not _take_anything(annotations):
        for _ in _readers(annotations):
            pass
    return annotations


class _Reader(NamedTuple):
    """Decodes the values of one typename for the handler that takes them."""

    decode: Callable[[bytes], Any] | None
    """Decodes a value from bytes; None if the handler takes the whole message, not decoded."""
    handler: Handler
    type_: Type[Any] | None = None
    """The type that decodes the value; None if the handler takes the bytes or the whole message."""


def _readers(
    takes: tuple[Any, ...],
) -> Iterator[tuple[str, Callable[[bytes], Any], Type[Any]]]:
    """Yield the typename, the decoder and the type of the values that a handler takes.

    The typename ``*/Login`` stands for the types named ``Login`` in all namespaces. It is yielded for a
    class ``Login`` without a registered type, whose handler takes the values of all these types, except those
    that belong to another class.
    """
    others = []
    for each in takes:
        if each is type(None) or _take_anything([each]):
            continue
        is_one = isinstance(each, Type) or (is_class(each) and not is_typed_dict(each))
        if not is_one:
            others.append(each)
        for type_ in types_of(each) if is_one else default_types.of_class(each):
            for typename, decode in type_.readers().items():
                yield typename, decode, type_
        is_named = has_fields(each) or is_typed_dict(each)
        if is_named and not default_types.of_class(each):
            own = automatic_type(each)
            yield f"*/{each.__name__}", own.serializer().deserialize, own
    if others:
        # A union does not take an annotation with a note that has no hash.
        union = others[0] if len(others) == 1 else Union[tuple(others)]  # noqa: UP007 - made of a tuple
        type_ = automatic_type(union)
        for typename, decode in type_.readers().items():
            yield typename, decode, type_


class Handlers:
    """Calls the handler that takes a message's value; a function type may have several handlers."""

    def __init__(self, handlers: tuple[Handler, ...]) -> None:
        self.handlers = handlers
        self._table: dict[str, _Reader] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"handlers": self.handlers, "_table": None}  # decoders cannot be pickled

    def __call__(self, context: Context, message: Message) -> Any:
        """Decode a message's value, call the handler for it, and store state that was changed in place."""
        handler, value = self.decoded(message)
        if handler.state is None:
            return handler.fun(context, value)
        state = attached(handler.state, context_values(context))
        result = handler.fun(context, value, state)
        write_changes(state)
        return result

    def takes(self, typename: str) -> bool:
        """Return whether a handler takes values with the typename ``typename``."""
        return self._reader(typename) is not None

    def type_of(self, typename: str) -> Type[Any] | None:
        """Return the type that decodes values with a typename for the handler that takes them, if there is one."""
        reader = self._reader(typename)
        return None if reader is None else reader.type_

    def typenames(self) -> list[str]:
        """Return the typenames of the values that the handlers decode."""
        return [type_.typename for each in self.handlers for *_, type_ in _readers(each.takes)]

    def decode(self, typename: str, content: bytes) -> Any:
        """Decode a value for the handler that takes it; return the bytes if no handler decodes it."""
        reader = self._reader(typename)
        return content if reader is None or reader.decode is None else reader.decode(content)

    def decoded(self, message: Message) -> tuple[Handler, Any]:
        """Return the handler that takes a message, and what it takes: the decoded value, or the whole message.

        Raises:
            UnexpectedValueError: if no handler takes the message.
            ValueDecodeError: if its value cannot be decoded; the error does not quote secrets.
            FunctionError: if its value cannot be decoded now.
        """
        typename, content = message.typed_value
        reader = self._reader(typename if content is not None else "")
        if reader is None:
            raise self._unexpected(message)
        decode, handler, type_ = reader
        if decode is None:
            return handler, message
        try:
            return handler, decode(content)
        except FunctionError:  # the value may be right, but cannot be decoded now
            raise
        except Exception as error:  # noqa: BLE001 - it is the cause, or may not be shown
            failure = does_not_decode(message, None, error, type_)
            raise failure from failure.__cause__

    def _reader(self, typename: str) -> _Reader | None:
        # Made late: types may get their names after the function was defined.
        table = self._table if self._table is not None else self._make_table()
        reader = table.get(typename)
        if reader is None and typename:
            reader = table.get(f"*/{typename.rpartition('/')[2]}")
            if reader is None or _is_of_another_class(typename, reader.type_):
                reader = table.get("*")
        return reader

    def _make_table(self) -> dict[str, _Reader]:
        table: dict[str, _Reader] = {}
        makers: dict[str, Type[Any]] = {}
        for handler in self.handlers:
            for typename, decode, type_ in _readers(handler.takes):
                if makers.setdefault(typename, type_) is not type_:
                    raise DefinitionError(
                        f"two of the handlers of {_name(self.handlers[0])} take values of type "
                        f"{typename}; give one of the classes another typename with make_json_type"
                    )
                table.setdefault(typename, _Reader(decode, handler, type_))
            if bytes in handler.takes:
                table.setdefault("*", _Reader(_unchanged, handler))
            if type(None) in handler.takes:
                table.setdefault("", _Reader(_unchanged, handler))
        for handler in self.handlers:  # they take all other values
            if _take_anything(handler.takes):
                table.setdefault("*", _Reader(None, handler))
                table.setdefault("", _Reader(None, handler))
        self._table = table
        return table

    def _unexpected(self, message: Message) -> UnexpectedValueError:
        value = message.typed_value
        what = f"of type {value.typename}" if value.has_value else "without a value"
        advice = self.advice(value.typename if value.has_value else "")
        return UnexpectedValueError(
            f"message to {message.target_typename}/{message.target_id}: no handler of the function "
            f"takes a message {what}; {advice}"
        )

    def advice(self, typename: str) -> str:
        """Return a text with the types that the handlers take, and what to do so that they take another one."""
        do = self.cure(typename)
        return f"they take {self.taken}. {do[0].upper()}{do[1:]}"

    @property
    def taken(self) -> str:
        """What the handlers take, as text."""
        return ", ".join(text_of_taken(each) for handler in self.handlers for each in handler.takes)

    def cure(self, typename: str) -> str:
        """Return what to do so that the handlers take values of a type or, if ``typename`` is empty, no value."""
        return cure(typename, [each for handler in self.handlers for each in handler.takes])


class AsyncHandlers(Handlers):
    """Calls handlers of which at least one is a coroutine function."""

    async def __call__(self, context: Context, message: Message) -> None:
        """Decode a message's value, await the handler for it, and store state that was changed in place."""
        handler, value = self.decoded(message)
        if handler.state is None:
            await _await_handler(handler, context, value)
            return
        state = attached(handler.state, context_values(context))
        await _await_handler(handler, context, value, state)
        write_changes(state)


async def _await_handler(handler: Handler, *arguments: Any) -> None:
    result: Awaitable[None] | None = handler.fun(*arguments)
    if handler.is_async or inspect.isawaitable(result):
        await cast("Awaitable[None]", result)
    else:
        refuse_coroutine(result)


def _take_anything(annotations: Iterable[Any]) -> bool:
    """Return whether one of the annotations stands for all messages."""
    return any(each is anything for each in annotations for anything in _ANYTHING)


def _is_of_another_class(typename: str, own: Type[Any] | None) -> bool:
    """Return whether a typename is registered for other classes than that of a type, although the names end alike."""
    registered = default_types.find(typename)
    if registered is None or own is None or not has_fields(own.python_type):
        return False
    members = [typing.get_origin(each) or each for each in alternatives(registered.python_type)]
    classes = [each for each in members if is_class(each) and each not in _FREE]
    return bool(classes) and not any(are_alike(each, own.python_type) for each in classes)


def _name(handler: Handler) -> str:
    return getattr(handler.fun, "__qualname__", repr(handler.fun))


def _unchanged(content: bytes) -> bytes:
    return content
