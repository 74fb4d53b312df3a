# SPDX-License-Identifier: Apache-2.0
"""What annotations say of values: classes with fields, immutable values, and what has no encoding."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import Any, Union
from uuid import UUID

import attrs

_IMMUTABLE = (
    *(str, int, float, bool, bytes, types.NoneType),
    *(datetime, date, time, timedelta, Decimal, UUID, Enum),
)

_LEAVES = {str, int, float, bool, bytes, types.NoneType}
"""Which hold nothing else: most of what values are made of."""
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
    """Return whether it is a class, and no more: neither ``list[int]`` nor ``Any``."""
    return (
        isinstance(annotation, type)
        and typing.get_origin(annotation) is None  # of Python 3.10, which takes both for classes
        and annotation is not Any
    )


def local_names(module: str | None, qualname: str) -> dict[str, Any]:
    """Return the local names where a class or function was defined, if a function defines it.

    Only types count: an annotation is no text that a variable has by chance.

    Args:
        module: the name of its module.
        qualname: its qualified name, which has the name of that function.
    """
    *_, outer, place, _name = ("", "", *qualname.split("."))
    frame = inspect.currentframe() if place == "<locals>" else None
    while frame is not None and (
        frame.f_globals.get("__name__") != module or frame.f_code.co_name != outer
    ):
        frame = frame.f_back
    found = {} if frame is None else frame.f_locals
    return {name: value for name, value in found.items() if not isinstance(value, str)}


def class_hints(class_: type) -> dict[str, Any]:
    """Return the annotations of a class and its bases, evaluated.

    Raises:
        NameError: if one names what does not exist where the class was defined.
    """
    found: dict[str, Any] = {}
    for base in reversed(class_.__mro__):
        found |= _own_hints(base)
    return found


def _own_hints(class_: type) -> dict[str, Any]:
    """Return the annotations of a class alone, evaluated."""
    own = vars(class_).get("__annotations__")
    if not (isinstance(own, dict) and own):
        return {}
    module = sys.modules.get(class_.__module__)
    names = {} if module is None else vars(module)
    local = local_names(class_.__module__, class_.__qualname__)
    alone = type(class_.__name__, (), {"__annotations__": dict(own)})
    names = {**names, class_.__name__: class_}
    return typing.get_type_hints(alone, names, local, include_extras=True)


def settle(annotation: Any) -> None:
    """Evaluate the annotations of all classes with fields in an annotation, for good.

    A class of the main program is sent to workers as it is, and what its annotations name is not
    there to be looked up.

    Raises:
        NameError: as for :func:`class_hints`.
    """
    waiting, done = [annotation], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in done:
            continue
        done.add(id(each))
        waiting += (typing.get_origin(each), *typing.get_args(each))
        if (
            is_class(each)
            and not is_pydantic(each)
            and (has_fields(each) or typing.is_typeddict(each))
        ):
            for base in each.__mro__:
                hints = _own_hints(base)
                if hints:
                    base.__annotations__.update(hints)
                    waiting += hints.values()


def is_pydantic(annotation: Any) -> bool:
    """Return whether it is a Pydantic model, without importing Pydantic."""
    return is_class(annotation) and hasattr(annotation, "model_validate_json")


def pydantic_models(annotation: Any) -> list[Any]:
    """Return the Pydantic models that an annotation is made of, such as those of a dict's values."""
    if is_pydantic(annotation):
        return [annotation]
    return [model for each in typing.get_args(annotation) for model in pydantic_models(each)]


def has_fields(annotation: Any) -> bool:
    """Return whether it is a class that names its fields, and can be encoded by them."""
    return is_class(annotation) and (
        dataclasses.is_dataclass(annotation)
        or attrs.has(annotation)
        or is_pydantic(annotation)
        or hasattr(annotation, "__struct_fields__")  # of msgspec
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def is_immutable(annotation: Any) -> bool:
    """Return whether no value of that annotation can be changed.

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
        try:
            parts = class_hints(annotation).values()
        except Exception:  # noqa: BLE001 - whatever evaluating them may raise
            return False
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


def _pydantic_problem(annotation: Any) -> str | None:
    if is_pydantic(annotation):
        return None
    import pydantic  # noqa: PLC0415 - only programs that have it have models

    try:
        pydantic.TypeAdapter(annotation)
    except pydantic.PydanticUserError as error:
        return f"Pydantic cannot read it: {error.message.splitlines()[0]}"
    return None


def field_problem(annotation: Any) -> str | None:
    """Return why no value of that annotation can be encoded and decoded; None if it can be."""
    if pydantic_models(annotation):
        return _pydantic_problem(annotation)
    import msgspec  # noqa: PLC0415 - workers of programs without structured types do without

    settle(annotation)
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
            if _has_cached_property(class_):  # it would become a part of the value
                return f"{text_of_annotation(class_)} has a cached property"
    return None


def _has_cached_property(class_: type) -> bool:
    known = {field.name for field in attrs.fields(class_)} | {"__weakref__"}
    return any(isinstance(each, cached_property) for each in vars(class_).values()) or not (
        known.issuperset(vars(class_).get("__slots__", ()))
    )


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values hold the same, also where ``==`` says no: NaN, or other time zones.

    >>> are_same([float("nan")], [float("nan")]), are_same([1, 2], (1, 2))
    (True, False)
    """
    class_ = type(one)
    if class_ is not type(other) or class_ in _LEAVES:
        return class_ is type(other) and _are_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_same, one, other))
    if isinstance(one, dict):
        return (
            len(one) == len(other)
            and all(map(are_same, one, other))
            and all(map(are_same, one.values(), other.values()))
        )
    if isinstance(one, datetime) and one.tzinfo and other.tzinfo:
        is_moment: bool = one.astimezone(timezone.utc) == other.astimezone(timezone.utc)
        return is_moment
    names = _field_names(class_)
    if names is not None:
        return all(are_same(getattr(one, name), getattr(other, name)) for name in names)
    return _are_equal(one, other)


def _are_equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN alone


def _field_names(class_: Any) -> list[str] | None:
    """Return the names of the fields that are encoded; None if it is no class with fields."""
    if is_pydantic(class_):
        return [name for name, field in class_.model_fields.items() if not field.exclude]
    if attrs.has(class_):
        return [field.name for field in attrs.fields(class_)]
    if dataclasses.is_dataclass(class_):
        return [field.name for field in dataclasses.fields(class_)]
    return None


def allows_anything(annotation: Any) -> bool:
    """Return whether it says nothing of some part of a value, and names no class with fields.

    >>> [allows_anything(each) for each in (Any, dict[str, Any], list, list[int])]
    [True, True, True, False]
    """
    import msgspec  # noqa: PLC0415 - as above

    parts = list(_parts(msgspec.inspect.type_info(annotation), set()))
    return any(isinstance(each, msgspec.inspect.AnyType) for each in parts) and not any(
        has_fields(getattr(each, "cls", None)) for each in parts
    )


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
