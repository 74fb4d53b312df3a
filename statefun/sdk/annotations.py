# SPDX-License-Identifier: Apache-2.0
"""Finds the types that encode and decode values, by the annotations of handlers and states."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NewType, Union

from google.protobuf.message import Message as ProtobufMessage

from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import has_fields, is_class, is_immutable, local_names
from statefun.sdk.structured import StructuredType, make_protobuf_type
from statefun.sdk.types import Type, default_types

NAMESPACE = "io.statefun.python"
"""The namespace of the types that statefun makes for annotations without a registered type."""
_ANY_JSON = "json"
"""The name of the type that statefun makes for an annotation without fields, such as ``list[int]``."""
_automatic: dict[Any, Type[Any]] = {}
"""The types that this process has made for annotations without a registered type, by annotation."""


def parameter_annotation(fun: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the annotation of a parameter, evaluated; ``Any`` if the parameter has none.

    Raises:
        NameError: if the annotation contains a name that does not exist where the function was defined.
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
    local = local_names(names.get("__name__"), getattr(function, "__qualname__", ""))
    hints = typing.get_type_hints(holder, names, local, include_extras=True)
    return hints[parameter.name]


def plain(annotation: Any) -> Any:
    """Remove ``Annotated`` and ``NewType`` from an annotation; return the annotation inside.

    If ``Annotated`` has a :class:`Type` among its metadata, that type is returned instead.
    """
    while True:
        if annotation is None:
            return type(None)
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif typing.get_origin(annotation) is Annotated:
            annotation, *notes = typing.get_args(annotation)
            for note in notes:
                if isinstance(note, Type):
                    return note
        else:
            return annotation


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union as a tuple; any other annotation becomes a tuple with one item.

    The items are without ``Annotated`` and ``NewType``; see :func:`plain`.

    >>> alternatives(Annotated[int | None, "how many"])
    (<class 'int'>, <class 'NoneType'>)
    """
    annotation = plain(annotation)
    if typing.get_origin(annotation) in {Union, UnionType}:
        members = map(alternatives, typing.get_args(annotation))
        return tuple(member for each in members for member in each)
    return (annotation,)


def types_of(annotation: Any) -> tuple[Type[Any], ...]:
    """Return the types that decode values of an annotation; the first one also encodes the values.

    Raises:
        DefinitionError: if no type can encode values of the annotation.
    """
    annotation = plain(annotation)
    if isinstance(annotation, Type):
        return (annotation,)
    types = default_types.of_class(annotation)
    if types:
        return types
    if is_class(annotation) and issubclass(annotation, ProtobufMessage):
        return (make_protobuf_type(annotation),)
    return (automatic_type(annotation),)


def automatic_type(annotation: Any) -> Type[Any]:
    """Return the type that encodes values as JSON, for an annotation without a registered type.

    >>> automatic_type(list[int])
    StructuredType('io.statefun.python/json')
    """
    name = annotation.__name__ if has_fields(annotation) else _ANY_JSON
    try:
        type_ = _automatic.get(annotation)
    except TypeError:  # a note within the annotation has no hash
        return StructuredType(f"{NAMESPACE}/{name}", annotation)
    if type_ is None:
        type_ = _automatic[annotation] = StructuredType(f"{NAMESPACE}/{name}", annotation)
    return type_


def is_unnamed(annotation: Any) -> bool:
    """Return whether an annotation is a class with fields that has no registered type.

    The type that statefun makes for such a class has the name of the class.
    """
    return (
        has_fields(annotation)
        and not issubclass(annotation, ProtobufMessage)
        and not default_types.of_class(annotation)
    )


def automatic_types(typename: str) -> Iterator[Type[Any]]:
    """Yield the types named ``typename`` that this process has made for annotations."""
    if typename == f"{NAMESPACE}/{_ANY_JSON}":
        yield automatic_type(Any)
    # The newest one first: a module of tests that was loaded before may have a class of the name.
    yield from [each for each in reversed(_made()) if each.typename == typename]


def _made() -> list[Type[Any]]:
    return list(_automatic.values())  # at once, as another thread may be making one


def known_types() -> Sequence[Type[Any]]:
    """Return the registered types, and those that this process has made for classes with fields.

    The type of other annotations is left out: all of them share its name, whatever the parts of one of them are.
    """
    made = [each for each in _made() if each.typename != f"{NAMESPACE}/{_ANY_JSON}"]
    return [*default_types.list(), *made]


def is_secret_type(typename: str) -> bool:
    """Return whether values with a typename are secret, or have parts that are; False if the typename is unknown."""
    return any(each.is_secret for each in known_types() if each.typename == typename)


def type_of_value(value: Any) -> Type[Any]:
    """Return the type that encodes a value which is sent without a type.

    Raises:
        DefinitionError: if no type can encode the value.

    >>> type_of_value("Ada")
    SimpleType('io.statefun.types/string')
    """
    class_ = type(value)
    types = default_types.of_class(class_)
    if types:
        return types[0]
    if value is None:
        raise DefinitionError("None cannot be sent as a value")
    if has_fields(class_) or issubclass(class_, ProtobufMessage):
        return types_of(class_)[0]
    # A date has one form in JSON. The classes of a list's items are only in its receiver's
    # annotation.
    return automatic_type(class_ if is_immutable(class_) else Any)
