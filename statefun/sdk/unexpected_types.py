# SPDX-License-Identifier: Apache-2.0
"""Texts about handlers and the types of values that they do, or do not, take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statefun.sdk.fields import has_fields, is_class, short_text, text_of_annotation
from statefun.sdk.nearest_names import nearest_name
from statefun.sdk.types import Type, default_types


def text_of_taken(annotation: Any) -> str:
    """Return what a handler takes as error texts show it: a type as its typename, and a class by its plain name.

    >>> text_of_taken(default_types.of_class(str)[0])
    'io.statefun.types/string'
    """
    return annotation.typename if isinstance(annotation, Type) else short_text(annotation)


def cure(typename: str, takes: Iterable[Any]) -> str:
    """Return what to do so that a function takes values of a type.

    Args:
        typename: the typename of the values; empty for messages without a value.
        takes: what the function's handlers take; the result may suggest a class among these, in case it was renamed.
    """
    if not typename:
        return "add one with .on(None)"
    names = [each.__name__ for each in takes if has_fields(each)]
    registered = default_types.find(typename)
    if registered is not None:  # another class cannot have it
        class_ = registered.python_type
        if class_ is not None and is_class(class_) and class_.__name__ in names:
            return (
                f"send an object of the class that they take, or add a handler with .on(...): {typename} is the type of another "
                f"class, {text_of_annotation(class_)}"
            )
        return "add one with .on(...), or name a class's type: make_json_type"
    near = nearest_name(typename.rpartition("/")[2], names)
    name = near or (names[0] if len(names) == 1 else "cls")
    return (
        "add one with .on(...), or give a class this type, also one that was renamed: "
        f'make_json_type("{typename}", {name})'
    )
