# SPDX-License-Identifier: Apache-2.0
"""Finds classes of values that functions take and cannot tell apart, since the classes share a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statefun.module.user_program import LOADED
from statefun.sdk.address import TypeName
from statefun.sdk.alike import DEFINED_AGAIN, are_alike
from statefun.sdk.annotations import automatic_type, is_unnamed
from statefun.sdk.fields import text_of_annotation
from statefun.sdk.functions import StatefulFunctions


def classes_of_one_name(functions: StatefulFunctions) -> Iterator[str]:
    """Yield a text about each class that shares its name with a former one: their types would have the same typename.

    A class of the same place is the same one if it is alike: a module or notebook cell may have run again.
    """
    firsts: dict[str, tuple[Any, TypeName]] = {}
    for function in functions:
        for class_ in function.annotations:
            if not is_unnamed(class_):
                continue
            first, first_function = firsts.setdefault(class_.__name__, (class_, function.typename))
            place, first_place = _place_of(class_), _place_of(first)
            is_again = place == first_place
            if is_again and are_alike(first, class_):
                continue
            text = f"{first_place}, which {first_function} takes, and"
            text += f" {'another ' if is_again else ''}{place}, which"
            text += f" {function.typename} takes, both have the typename"
            text += f" {automatic_type(class_).typename}, so one would be decoded as the other;"
            line = f'make_json_type("{function.typename.namespace}/{class_.__name__}", {place})'
            again = f"; {DEFINED_AGAIN}" if is_again else ""
            yield f"{text} give one of them another typename: {line}{again}"


def _place_of(class_: Any) -> str:
    """Return the module and name of a class, without the module if it is that of the program."""
    place = text_of_annotation(class_)
    for program in ("__main__", LOADED):
        place = place.removeprefix(f"{program}.")
    return place
