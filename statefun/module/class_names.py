# SPDX-License-Identifier: Apache-2.0
"""Finds different classes of one name whose values functions take: a typename cannot distinguish these values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from statefun.module.user_program import LOADED
from statefun.sdk.address import TypeName
from statefun.sdk.alike import DEFINED_AGAIN, are_alike
from statefun.sdk.annotations import automatic_type, is_unnamed
from statefun.sdk.fields import is_class, text_of_annotation
from statefun.sdk.functions import StatefulFunctions


def classes_of_one_name(functions: StatefulFunctions) -> Iterator[str]:
    """Yield a text about each class that shares its name with a former one: their types would have the same typename.

    A class of the same place counts as the same one if it has the same fields, or has replaced the former one there: a
    module or notebook cell may have run again.
    """
    firsts: dict[str, tuple[Any, TypeName]] = {}
    for function in functions:
        for class_ in function.annotations:
            if not is_unnamed(class_):
                continue
            first, first_function = firsts.setdefault(class_.__name__, (class_, function.typename))
            place, first_place = _place_of(class_), _place_of(first)
            is_of_one_place = place == first_place
            if is_of_one_place and (are_alike(first, class_) or _has_replaced(first, class_)):
                continue
            text = f"{first_place}, which {first_function} takes, and"
            text += f" {'another ' if is_of_one_place else ''}{place}, which"
            text += f" {function.typename} takes, both have the typename"
            text += f" {automatic_type(class_).typename}, so one would be decoded as the other;"
            line = f'make_json_type("{function.typename.namespace}/{class_.__name__}", {place})'
            again = f"; {DEFINED_AGAIN}" if is_of_one_place else ""
            yield f"{text} give one of them another typename: {line}{again}"


def _has_replaced(one: Any, other: Any) -> bool:
    """Return whether a class may have replaced others of its place, of which these are two.

    Then it is there, and the others are no longer in the module; or the module itself was replaced. A class that a
    function has made is not at its place, or is also there under another name.
    """
    module = sys.modules.get(one.__module__)
    if module is None:
        return True
    present: Any = module
    for name in one.__qualname__.split("."):
        present = getattr(present, name, None)
    former = [each for each in (one, other) if each is not present]
    return (
        is_class(present)
        and present.__qualname__ == one.__qualname__
        and not any(
            value is each
            for name, value in vars(module).items()
            if not name.startswith("_")  # IPython keeps what a cell has returned
            for each in former
        )
    )


def _place_of(class_: Any) -> str:
    """Return the module and name of a class, without the module if it is that of the program."""
    place = text_of_annotation(class_)
    for program in ("__main__", LOADED):
        place = place.removeprefix(f"{program}.")
    return place
