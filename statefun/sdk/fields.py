# SPDX-License-Identifier: Apache-2.0
"""Examines annotations: whether they are classes with fields, and whether values are immutable or can be encoded."""

from __future__ import annotations

import dataclasses
import inspect
import re
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
"""The most frequent classes of values without parts: :func:`are_same` compares such values with ``==``."""
_CONTAINERS = {Union, types.UnionType, tuple, frozenset}
"""Generic classes whose values are immutable if the annotations of their members are immutable."""


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two annotations are equal; a union with a note that has no hash equals itself alone.

    >>> from typing import Annotated
    >>> noted = list[Annotated[str, ["a note"]]] | None
    >>> are_equal(noted, noted), are_equal(noted, int | None), are_equal(int | None, int | None)
    (True, False, True)
    """
    try:
        return bool(one == other)
    except TypeError:
        return one is other


def text_of_annotation(annotation: Any) -> str:
    """Return an annotation as error texts show it.

    >>> text_of_annotation(int | None), text_of_annotation(str)
    ('int | None', 'str')
    """
    if is_class(annotation):
        module, name = annotation.__module__, annotation.__qualname__
        return name if module == "builtins" else f"{module}.{name}"
    return str(annotation).replace("typing.", "")


_MODULE = re.compile(r"(?<![\w.'\"])(?:(?:[A-Za-z_]\w*|<locals>)\.)+(?=[A-Za-z_])")
"""What stands before the name of a class in the text of an annotation."""


def short_text(annotation: Any) -> str:
    """Return an annotation with the plain names of its classes, without their modules, for error texts.

    >>> from datetime import date
    >>> short_text(date), short_text(list[date])
    ('date', 'list[date]')
    """
    if is_class(annotation):
        name: str = annotation.__name__
        return name
    return _MODULE.sub("", text_of_annotation(annotation))


def is_class(annotation: Any) -> bool:
    """Return whether an annotation is just a class, unlike ``list[int]`` and ``Any``."""
    return (
        isinstance(annotation, type)
        and typing.get_origin(annotation) is None  # Python 3.10 takes ``list[int]`` for a class
        and annotation is not Any
    )


def local_names(module: str | None, qualname: str) -> dict[str, Any]:
    """Return the local variables of the function inside of which a class or function is defined.

    Annotations of the class or function may name these variables. Variables that hold a string are
    left out, as a string is not a type. The result is empty for a class or function of the module's
    top level.

    Args:
        module: the name of the module of the class or function.
        qualname: the qualified name of the class or function, which includes the name of the
            function inside of which it is defined.
    """
    *_, outer, place, _name = ("", "", *qualname.split("."))
    frame = inspect.currentframe() if place == "<locals>" else None
    while frame is not None and (
        frame.f_globals.get("__name__") != module or frame.f_code.co_name != outer
    ):
        frame = frame.f_back
    names = {} if frame is None else frame.f_locals
    return {name: value for name, value in names.items() if not isinstance(value, str)}


def class_hints(class_: type) -> dict[str, Any]:
    """Return the annotations of a class and its bases, evaluated.

    Raises:
        NameError: if an annotation contains a name that does not exist where the class was defined.
    """
    hints: dict[str, Any] = {}
    for base in reversed(class_.__mro__):
        hints |= _own_hints(base)
    return hints


def _own_hints(class_: type) -> dict[str, Any]:
    """Return the annotations of a class without its bases, evaluated."""
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
    """In each class that an annotation contains, replace the annotations of fields by the evaluated ones.

    A class of the main program is pickled by value for workers, where the names in the annotations
    of its fields do not exist.

    Raises:
        NameError: as for :func:`class_hints`.
    """
    pending, visited = [annotation], set[int]()
    while pending:
        each = pending.pop()
        if id(each) in visited:
            continue
        visited.add(id(each))
        pending += (typing.get_origin(each), *typing.get_args(each))
        if is_class(each) and not is_pydantic(each) and (has_fields(each) or is_typed_dict(each)):
            for base in each.__mro__:
                hints = _own_hints(base)
                if hints:
                    base.__annotations__.update(hints)
                    pending += hints.values()


def is_pydantic(annotation: Any) -> bool:
    """Return whether an annotation is a Pydantic model, without importing Pydantic."""
    return is_class(annotation) and hasattr(annotation, "model_validate_json")


def pydantic_models(annotation: Any) -> list[Any]:
    """Return the Pydantic models within an annotation, such as those of a dict's values."""
    if is_pydantic(annotation):
        return [annotation]
    return [model for each in typing.get_args(annotation) for model in pydantic_models(each)]


def has_fields(annotation: Any) -> bool:
    """Return whether an annotation is a class with named fields, such as a dataclass."""
    return is_class(annotation) and (
        dataclasses.is_dataclass(annotation)
        or attrs.has(annotation)
        or is_pydantic(annotation)
        or hasattr(annotation, "__struct_fields__")  # of msgspec
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def is_typed_dict(annotation: Any) -> bool:
    """Return whether an annotation is a class ``TypedDict``, also one of the package ``typing_extensions``.

    >>> from typing import TypedDict
    >>> is_typed_dict(TypedDict("Item", {"sku": str})), is_typed_dict(dict)
    (True, False)
    """
    return (
        is_class(annotation) and issubclass(annotation, dict) and hasattr(annotation, "__total__")
    )


def is_immutable(annotation: Any) -> bool:
    """Return whether all values of an annotation are immutable.

    >>> is_immutable(int | None), is_immutable(tuple[str, ...]), is_immutable(list[int])
    (True, True, False)
    """
    return _is_immutable(annotation, ())


def _is_immutable(annotation: Any, within: tuple[Any, ...]) -> bool:
    if annotation in within:  # a class with parts of its own class
        return True
    within = (*within, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        parts: Iterable[Any] = arguments[:1]
    elif origin in _CONTAINERS:
        parts = [each for each in arguments if each is not ...]
    elif is_class(annotation) and _is_frozen(annotation):
        try:
            hints = class_hints(annotation)
        except Exception:  # noqa: BLE001 - whatever evaluating them may raise
            return False
        # An attrs class may have fields without annotations, whose values may be anything.
        own = [each.name for each in attrs.fields(annotation)] if attrs.has(annotation) else ()
        parts = [*hints.values(), *(Any for name in own if name not in hints)]
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
    import pydantic  # noqa: PLC0415 - only programs with Pydantic have models

    try:
        pydantic.TypeAdapter(annotation)
    except pydantic.PydanticUserError as error:
        return f"Pydantic cannot read the annotation: {error.message.splitlines()[0]}"
    return None


def field_problem(annotation: Any) -> str | None:
    """Return why values of an annotation cannot be encoded and decoded; None if they can."""
    if pydantic_models(annotation):
        return _pydantic_problem(annotation)
    import msgspec  # noqa: PLC0415 - workers of programs without structured types do without

    settle(annotation)
    for each in _parts(msgspec.inspect.type_info(annotation), set()):
        class_ = getattr(each, "cls", None)
        if isinstance(each, msgspec.inspect.CustomType):
            return (
                f"{text_of_annotation(class_)} is neither a dataclass, nor an attrs class, "
                "nor a class of JSON values"
            )
        if class_ is not None and attrs.has(class_):
            private = [field.name for field in attrs.fields(class_) if field.name.startswith("_")]
            if private:
                return f"{text_of_annotation(class_)} has a private field, {private[0]}"
            if _has_cached_property(class_):  # msgspec would encode it as a field
                return f"{text_of_annotation(class_)} has a cached property"
    return None


def _has_cached_property(class_: type) -> bool:
    names = {field.name for field in attrs.fields(class_)} | {"__weakref__"}
    return any(isinstance(each, cached_property) for each in vars(class_).values()) or not (
        names.issuperset(vars(class_).get("__slots__", ()))
    )


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and have the same classes, also in all their parts.

    Unlike ``==``, this counts NaN as equal to NaN, and times with time zones as equal if they are the
    same moment, also in an hour that the clock repeats.

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
    names = _names_in_model(class_) if is_pydantic(class_) else field_names(class_)
    if names is not None:
        return all(are_same(getattr(one, name), getattr(other, name)) for name in names)
    return _are_equal(one, other)


def _are_equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN alone


def _names_in_model(model: Any) -> list[str]:
    """Return the names of the attributes with the encoded fields of a Pydantic model."""
    fields = model.model_fields.items()
    return [*(name for name, field in fields if not field.exclude), "model_extra"]


def field_names(class_: Any) -> list[str] | None:
    """Return the names of the attributes with the fields of a class; None for a class without fields, a model or a TypedDict.

    >>> from typing import NamedTuple
    >>> field_names(NamedTuple("Point", [("x", int), ("y", int)])), field_names(int)
    (['x', 'y'], None)
    """
    if attrs.has(class_):
        return [field.name for field in attrs.fields(class_)]
    if dataclasses.is_dataclass(class_):
        return [field.name for field in dataclasses.fields(class_)]
    fields = getattr(class_, "__struct_fields__", None)  # of msgspec's classes
    if issubclass(class_, tuple):
        fields = getattr(class_, "_fields", None)
    return [*fields] if isinstance(fields, tuple) else None


def allows_anything(annotation: Any) -> bool:
    """Return whether some part of a value may be anything, such as the items of a plain ``list``.

    The result is False for an annotation that contains a class with fields.

    >>> [allows_anything(each) for each in (Any, dict[str, Any], list, list[int])]
    [True, True, True, False]
    """
    import msgspec  # noqa: PLC0415 - as above

    parts = list(_parts(msgspec.inspect.type_info(annotation), set()))
    return any(isinstance(each, msgspec.inspect.AnyType) for each in parts) and not any(
        has_fields(getattr(each, "cls", None)) for each in parts
    )


def forget_decoders(annotation: Any) -> None:
    """Remove msgspec's cache from each class that an annotation contains.

    msgspec stores the cache in a class when it makes a decoder for the class. The cache cannot be
    pickled, and so the class could not be sent to workers. The decoder does not need the cache any more.
    """
    import msgspec  # noqa: PLC0415 - as above

    for each in _parts(msgspec.inspect.type_info(annotation), set()):
        class_ = getattr(each, "cls", None)
        if class_ is not None and "__msgspec_cache__" in vars(class_):
            del class_.__msgspec_cache__


def _parts(description: Any, visited: set[int]) -> Iterator[Any]:
    """Yield msgspec's description of a type, and the descriptions of the types of its parts."""
    if id(description) in visited:
        return
    visited.add(id(description))
    if isinstance(description, tuple):
        for each in description:
            yield from _parts(each, visited)
    elif hasattr(description, "__struct_fields__"):
        yield description
        for name in description.__struct_fields__:
            yield from _parts(getattr(description, name), visited)
