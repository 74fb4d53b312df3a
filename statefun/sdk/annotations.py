# SPDX-License-Identifier: Apache-2.0
"""From the annotations of handlers and states to types of values."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any

from google.protobuf.message import Message as ProtobufMessage

from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import has_fields, is_class
from statefun.sdk.structured import StructuredType, make_protobuf_type
from statefun.sdk.types import Type, default_types

NAMESPACE = "io.statefun.python"
"""Of the types that nobody has named."""
_ANY_JSON = "json"
"""The name of the types of values that are of no class with fields."""
_automatic: dict[Any, Type[Any]] = {}
"""The types that were made, by their annotations."""


def parameter_annotation(fun: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return what a parameter's annotation means; ``Any`` if there is none.

    Raises:
        NameError: if it names what does not exist where the function was defined.
    """
    raw = parameter.annotation
    if raw is inspect.Parameter.empty:
        return Any
    if not isinstance(raw, str):
        return raw
    function = inspect.unwrap(fun)
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    function = getattr(function, "__func__", function)
    holder = SimpleNamespace(__annotations__={parameter.name: raw})
    names = getattr(function, "__globals__", {})
    hints = typing.get_type_hints(holder, names, names_where_defined(), include_extras=True)
    return hints[parameter.name]


def names_where_defined() -> Mapping[str, Any]:
    """Return the local names of the user's code that is running: of the nearest frame not ours."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("statefun."):
        frame = frame.f_back
    return {} if frame is None else dict(frame.f_locals)


def plain(annotation: Any) -> Any:
    """Return an annotation without what ``Annotated`` adds, unless that is a type of values."""
    if typing.get_origin(annotation) is not Annotated:
        return annotation
    content, *notes = typing.get_args(annotation)
    return next((note for note in notes if isinstance(note, Type)), content)


def types_of(annotation: Any) -> tuple[Type[Any], ...]:
    """Return the types with which values of an annotation are decoded; the first encodes them.

    Raises:
        DefinitionError: if there is no way to encode such values.
    """
    annotation = plain(annotation)
    if isinstance(annotation, Type):
        return (annotation,)
    if is_class(annotation):
        known = default_types.of_class(annotation)
        if known:
            return known
        if issubclass(annotation, ProtobufMessage):
            return (make_protobuf_type(annotation),)
    return (automatic_type(annotation),)


def automatic_type(annotation: Any) -> Type[Any]:
    """Return the type, in JSON, of values whose type nobody has named.

    >>> automatic_type(list[int])
    StructuredType('io.statefun.python/json')
    """
    known = _automatic.get(annotation)
    if known is None:
        name = annotation.__name__ if has_fields(annotation) else _ANY_JSON
        known = StructuredType(f"{NAMESPACE}/{name}", annotation)
        _automatic[annotation] = known
    return known


def automatic_types(typename: str) -> Iterator[Type[Any]]:
    """Yield the types of that name which were made so far."""
    if typename == f"{NAMESPACE}/{_ANY_JSON}":
        yield automatic_type(Any)
    yield from [each for each in _automatic.values() if each.typename == typename]


def type_of_value(value: Any) -> Type[Any]:
    """Return the type with which a value is sent.

    Raises:
        DefinitionError: if there is no way to encode it.

    >>> type_of_value("Ada")
    SimpleType('io.statefun.types/string')
    """
    class_ = type(value)
    known = default_types.of_class(class_)
    if known:
        return known[0]
    if value is None:
        raise DefinitionError("None is no value that can be sent")
    if has_fields(class_) or issubclass(class_, ProtobufMessage):
        return types_of(class_)[0]
    return automatic_type(Any)
