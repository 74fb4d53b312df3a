# SPDX-License-Identifier: Apache-2.0
"""What annotations say of values: classes with fields, immutable values, and what has no encoding."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Union
from uuid import UUID

import attrs

_IMMUTABLE = (
    *(str, int, float, bool, bytes, types.NoneType),
    *(datetime, date, time, timedelta, Decimal, UUID, Enum),
)

_CONTAINERS = {Union, types.UnionType, tuple, frozenset}
"""Whose values cannot be changed, if those that they hold cannot."""


def text_of_annotation(annotation: Any) -> str:
    """Return an annotation as errors show it.

    >>> text_of_annotation(int | None), text_of_annotation(str)
    ('int | None', 'str')
    """
    if is_class(annotation):
        module, name = annotation.__module__, annotation.__qualname__
        return name if module == "builtins" else f"{module}.{name}"
    return str(annotation).replace("typing.", "")


def is_class(annotation: Any) -> bool:
    """Tell whether it is a class, and no more: neither ``list[int]`` nor ``Any``."""
    return (
        isinstance(annotation, type)
        and typing.get_origin(annotation) is None  # of Python 3.10, which takes both for classes
        and annotation is not Any
    )


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; of another annotation, itself."""
    if typing.get_origin(annotation) in {Union, types.UnionType}:
        return typing.get_args(annotation)
    return (annotation,)


def is_pydantic(annotation: Any) -> bool:
    """Tell whether it is a Pydantic model, without importing Pydantic."""
    return is_class(annotation) and hasattr(annotation, "__pydantic_core_schema__")


def has_fields(annotation: Any) -> bool:
    """Tell whether it is a class that names its fields, and can be encoded by them."""
    return is_class(annotation) and (
        dataclasses.is_dataclass(annotation)
        or attrs.has(annotation)
        or is_pydantic(annotation)
        or hasattr(annotation, "__struct_fields__")  # of msgspec
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
        or typing.is_typeddict(annotation)
    )


def is_immutable(annotation: Any) -> bool:
    """Tell whether no value of that annotation can be changed.

    >>> is_immutable(int | None), is_immutable(tuple[str, ...]), is_immutable(list[int])
    (True, True, False)
    """
    return _is_immutable(annotation, ())


def _is_immutable(annotation: Any, within: tuple[Any, ...]) -> bool:
    if annotation in within:  # a class that holds its like
        return True
    within = (*within, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        parts: Iterable[Any] = arguments[:1]
    elif origin in _CONTAINERS:
        parts = [each for each in arguments if each is not ...]
    elif is_class(annotation) and _is_frozen(annotation):
        parts = typing.get_type_hints(annotation, include_extras=True).values()
    else:
        return origin is typing.Literal or (
            is_class(annotation) and issubclass(annotation, _IMMUTABLE)
        )
    return all(_is_immutable(each, within) for each in parts)


def _is_frozen(class_: type) -> bool:
    if attrs.has(class_):
        return getattr(class_.__setattr__, "__name__", "") == "_frozen_setattrs"
    parameters = getattr(class_, "__dataclass_params__", None)
    return bool(getattr(parameters, "frozen", False))


def field_problem(annotation: Any) -> str | None:
    """Return why no value of that annotation can be encoded and decoded; None if it can be."""
    if is_pydantic(annotation):
        return None
    import msgspec  # noqa: PLC0415 - workers of programs without structured types do without

    for each in _parts(msgspec.inspect.type_info(annotation), set()):
        class_ = getattr(each, "cls", None)
        if isinstance(each, msgspec.inspect.CustomType):
            return (
                f"{text_of_annotation(class_)} is none of a dataclass, an attrs class, and what "
                "JSON has"
            )
        if class_ is not None and attrs.has(class_):
            private = [field.name for field in attrs.fields(class_) if field.name.startswith("_")]
            if private:
                return f"{text_of_annotation(class_)} has a private field, {private[0]}"
    return None


def forget_decoders(annotation: Any) -> None:
    """Remove what msgspec keeps in each class that it has made a decoder for.

    It cannot be pickled, and so the class could not be sent to workers. Decoders work without.
    """
    import msgspec  # noqa: PLC0415 - as above

    for each in _parts(msgspec.inspect.type_info(annotation), set()):
        class_ = getattr(each, "cls", None)
        if class_ is not None and "__msgspec_cache__" in vars(class_):
            del class_.__msgspec_cache__


def _parts(shape: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the parts of a shape of msgspec's, and those of their fields."""
    if id(shape) in seen:
        return
    seen.add(id(shape))
    if isinstance(shape, tuple):
        for each in shape:
            yield from _parts(each, seen)
    elif hasattr(shape, "__struct_fields__"):
        yield shape
        for name in shape.__struct_fields__:
            yield from _parts(getattr(shape, name), seen)
