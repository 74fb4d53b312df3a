# SPDX-License-Identifier: Apache-2.0
"""Compares classes of values: whether an object of one class can be decoded as one of the other, and loses nothing."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

import attrs

from statefun.sdk.annotations import alternatives
from statefun.sdk.fields import class_hints, has_fields, is_class, is_pydantic
from statefun.sdk.types import Type


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two annotations describe the same values: classes do if they have the same name and the same fields.

    Classes that are alike are often one class: it is another object after a module or a notebook cell has run again,
    in a program that was loaded under a second name, and in a worker that got it by value.

    >>> import dataclasses
    >>> first, second = (dataclasses.make_dataclass("Item", [("sku", str)]) for _ in range(2))
    >>> third = dataclasses.make_dataclass("Item", [("sku", str), ("price", int)])
    >>> are_alike(first, second), are_alike(first, third)
    (True, False)
    """
    if is_class(one) and is_class(other):  # else an annotation may have no hash
        return _are_classes_alike(one, other)
    return _are_alike(one, other, frozenset())


@lru_cache(maxsize=1000)
def _are_classes_alike(one: type, other: type) -> bool:
    return _are_alike(one, other, frozenset())


def _are_alike(one: Any, other: Any, within: frozenset[tuple[type, type]]) -> bool:
    members, others = _members(one), _members(other)
    if len(members) > 1 or len(others) > 1:
        return _are_all_alike(members, others, within)
    one, other = members[0], others[0]
    for kind, name in ((Type, "typename"), (TypeVar, "__name__")):
        if isinstance(one, kind) and isinstance(other, kind):
            return bool(getattr(one, name) == getattr(other, name))
    if is_class(one) and is_class(other):
        # A class may have parts of its own class.
        if one is other or (one, other) in within:
            return True
        within |= {(one, other)}
        return one.__name__ == other.__name__ and _have_same_parts(one, other, within)
    arguments, other_arguments = typing.get_args(one), typing.get_args(other)
    if arguments and other_arguments:
        origins = typing.get_origin(one), typing.get_origin(other)
        return _are_alike(*origins, within) and _are_all_alike(arguments, other_arguments, within)
    return bool(one == other)


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, also of one that the statement ``type`` has named."""
    return alternatives(getattr(annotation, "__value__", annotation))


def _are_all_alike(
    some: tuple[Any, ...], others: tuple[Any, ...], within: frozenset[tuple[type, type]]
) -> bool:
    return len(some) == len(others) and all(
        _are_alike(one, other, within) for one, other in zip(some, others, strict=True)
    )


def _have_same_parts(one: type, other: type, within: frozenset[tuple[type, type]]) -> bool:
    if issubclass(one, Enum) and issubclass(other, Enum):
        return [(each.name, each.value) for each in one] == [
            (each.name, each.value) for each in other
        ]
    fields, others = _fields(one), _fields(other)
    if fields is None or others is None or _are_in_order(one) != _are_in_order(other):
        return False
    is_same = [*fields] == [*others] if _are_in_order(one) else fields.keys() == others.keys()
    return is_same and all(_are_alike(fields[name], others[name], within) for name in fields)


def _are_in_order(class_: Any) -> bool:
    """Return whether fields are encoded by their order, and not by their names."""
    config = getattr(class_, "__struct_config__", None)  # of msgspec's classes
    return issubclass(class_, tuple) or getattr(config, "array_like", False)


def _fields(class_: Any) -> dict[str, Any] | None:
    """Return the annotations of a class's fields by name; None for a class without fields."""
    if is_pydantic(class_):
        return {name: field.annotation for name, field in class_.model_fields.items()}
    if not (has_fields(class_) or typing.is_typeddict(class_)):
        return None
    try:
        hints = class_hints(class_)
    except Exception:  # noqa: BLE001 - whatever evaluating them may raise
        return None
    names = _names(class_)
    return hints if names is None else {name: hints.get(name) for name in names}


def _names(class_: Any) -> Iterable[str] | None:
    """Return the names of the fields of a class whose annotations are not only those of fields, or may be missing."""
    if attrs.has(class_):
        return [each.name for each in attrs.fields(class_)]
    if dataclasses.is_dataclass(class_):
        return [each.name for each in dataclasses.fields(class_)]
    return getattr(class_, "_fields", None)  # of a named tuple
