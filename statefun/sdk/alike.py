# SPDX-License-Identifier: Apache-2.0
"""Compares classes of values: whether an object of one class can be decoded as one of the other, and loses nothing."""

from __future__ import annotations

import typing
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from statefun.sdk.annotations import alternatives
from statefun.sdk.fields import (
    are_equal,
    class_hints,
    field_names,
    has_fields,
    is_class,
    is_pydantic,
    is_typed_dict,
)
from statefun.sdk.types import Type

DEFINED_AGAIN = "if a class was defined again, define the functions that take it again, too"
"""The advice about two classes of one place."""
_EMPTY = (list, dict, set)
"""The classes whose empty objects msgspec leaves out if they are the factories of defaults."""
_Pairs: TypeAlias = frozenset[tuple[int, int]]
"""The ids of the annotations that are being compared, in pairs."""


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


def _are_alike(one: Any, other: Any, within: _Pairs) -> bool:
    """Compare two annotations; within the comparison of a pair, its classes and named annotations are alike."""
    if one is other or (id(one), id(other)) in within:
        return True
    if _is_named(one) or _is_named(other):
        within |= {(id(one), id(other))}
        return _are_alike(_value_of(one), _value_of(other), within)
    members, others = alternatives(one), alternatives(other)
    if len(members) > 1 or len(others) > 1:
        return _are_all_alike(members, others, within)
    one, other = members[0], others[0]
    if is_class(one) and is_class(other):
        within |= {(id(one), id(other))}  # a class may have parts of its own class
        return one.__name__ == other.__name__ and _have_same_parts(one, other, within)
    if isinstance(one, Enum) and isinstance(other, Enum):  # of Literal
        return one.name == other.name and _are_alike(type(one), type(other), within)
    return _are_alike_without_classes(one, other, within)


def _are_alike_without_classes(one: Any, other: Any, within: _Pairs) -> bool:
    for kind, name in ((Type, "typename"), (TypeVar, "__name__")):
        if isinstance(one, kind) and isinstance(other, kind):
            return bool(getattr(one, name) == getattr(other, name))
    arguments, other_arguments = typing.get_args(one), typing.get_args(other)
    if arguments and other_arguments:
        origins = typing.get_origin(one), typing.get_origin(other)
        return _are_alike(*origins, within) and _are_all_alike(arguments, other_arguments, within)
    return are_equal(one, other)


def _is_named(annotation: Any) -> bool:
    """Return whether the statement ``type`` has given the annotation its name, which the annotation may contain."""
    # An annotation with arguments has the attribute of the annotation without them.
    return hasattr(annotation, "__value__") and not typing.get_args(annotation)


def _value_of(annotation: Any) -> Any:
    return annotation.__value__ if _is_named(annotation) else annotation


def _are_all_alike(some: tuple[Any, ...], others: tuple[Any, ...], within: _Pairs) -> bool:
    return len(some) == len(others) and all(
        _are_alike(one, other, within) for one, other in zip(some, others, strict=True)
    )


def _have_same_parts(one: type, other: type, within: _Pairs) -> bool:
    if issubclass(one, Enum) and issubclass(other, Enum):
        return [(each.name, each.value) for each in one] == [
            (each.name, each.value) for each in other
        ]
    if not (_has_parts(one) or _has_parts(other)):  # only their places are known
        return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
    fields, others = _fields(one), _fields(other)
    if fields is None or others is None or _are_in_order(one) != _are_in_order(other):
        return False
    is_same = [*fields] == [*others] if _are_in_order(one) else fields.keys() == others.keys()
    return (
        is_same
        and _options(one) == _options(other)
        and all(_are_alike(fields[name], others[name], within) for name in fields)
    )


def _are_in_order(class_: Any) -> bool:
    """Return whether fields are encoded by their order, and not by their names."""
    config = getattr(class_, "__struct_config__", None)  # of msgspec's classes
    return issubclass(class_, tuple) or getattr(config, "array_like", False)


def _options(class_: Any) -> tuple[Any, ...]:
    """Return what msgspec adds to encoded objects of a class, and what it leaves out of them."""
    config = getattr(class_, "__struct_config__", None)
    if config is None:
        return (None, None, None)
    left_out = _left_out(class_) if config.omit_defaults else None
    return (config.tag_field, config.tag, left_out)


def _left_out(class_: Any) -> dict[str, str]:
    """Return the values that are not encoded, as text, by the encoded names of their fields."""
    import msgspec  # noqa: PLC0415 - only programs with its classes get here

    left_out = {}
    for field in msgspec.structs.fields(class_):
        if field.default is not msgspec.NODEFAULT:
            left_out[field.encode_name] = repr(field.default)
        elif field.default_factory in _EMPTY:
            left_out[field.encode_name] = repr(field.default_factory)
    return left_out


def _has_parts(class_: Any) -> bool:
    return has_fields(class_) or is_typed_dict(class_)


def _fields(class_: Any) -> dict[str, Any] | None:
    """Return the annotations of a class's fields, by the names that encoded objects have; None for a class whose fields are not known."""
    if is_pydantic(class_):
        return {_name_in_model(*each): each[1].annotation for each in class_.model_fields.items()}
    if not _has_parts(class_):
        return None
    try:
        hints = class_hints(class_)
    except Exception:  # noqa: BLE001 - whatever evaluating them may raise
        return None
    names = field_names(class_)
    if names is None:  # a TypedDict
        return hints
    keys = getattr(class_, "__struct_encode_fields__", names)  # of msgspec's classes
    return {key: hints.get(name) for key, name in zip(keys, names, strict=True)}


def _name_in_model(name: str, field: Any) -> str:
    """Return the name of a Pydantic model's field, with all that is said about its name in encoded objects, if something is."""
    said = (field.serialization_alias, field.validation_alias, field.exclude)
    return f"{name} {said}" if any(said) else name
