# SPDX-License-Identifier: Apache-2.0
"""Finds the classes within an annotation, such as those of the fields of its classes."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NewType

from statefun.sdk.fields import class_hints, has_fields, is_class, is_pydantic, is_typed_dict
from statefun.sdk.types import Type


def annotations_within(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and those within it: of members, items and fields. Classes of Python itself are left out.

    >>> list(annotations_within(list[int] | None))
    [list[int] | None, list[int]]
    """
    pending, visited = [annotation], set[int]()
    kept = []  # an id belongs to another object as soon as its object is gone
    while pending:
        each = pending.pop()
        if id(each) in visited or (is_class(each) and each.__module__ == "builtins"):
            continue
        visited.add(id(each))
        kept.append(each)
        if typing.get_origin(each) is not typing.Annotated:  # its notes may have no hash
            yield each
        pending += _within(each)


def _within(annotation: Any) -> list[Any]:
    """Return the annotations that an annotation consists of."""
    if isinstance(annotation, Type):  # of Annotated
        return []
    if isinstance(annotation, NewType):
        return [annotation.__supertype__]
    if hasattr(annotation, "__value__"):  # an alias of the statement ``type``
        return [annotation.__value__, *typing.get_args(annotation)]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:  # the arguments are values
        return []
    if origin is typing.Annotated:
        notes = annotation.__metadata__
        return [arguments[0], *(each for each in notes if isinstance(each, Type))]
    within = [*arguments, *([origin] if has_fields(origin) else [])]
    if isinstance(annotation, typing.TypeVar):
        within += [annotation.__bound__, *annotation.__constraints__]
    elif is_pydantic(annotation):
        within += [field.annotation for field in annotation.model_fields.values()]
    elif has_fields(annotation) or is_typed_dict(annotation):
        # Evaluating them may raise any exception: msgspec has refused such classes.
        with suppress(Exception):
            within += class_hints(annotation).values()
    return within
