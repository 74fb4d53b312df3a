# SPDX-License-Identifier: Apache-2.0
"""Reads the annotations of handlers of tables and joins, and reports errors in the definitions of these handlers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from statefun.sdk.annotations import alternatives, parameter_annotation
from statefun.sdk.callables import yields
from statefun.sdk.errors import DefinitionError
from statefun.sdk.flaws import collect
from statefun.sdk.functions import place_of_definition
from statefun.sdk.handlers import checked_annotations


def taken_by(fun: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return the annotations of a handler's parameters after the context; a union is split into its members.

    Args:
        fun: the handler.
        names: what the parameters after the context are for, such as ``row``; error texts name them so.

    Raises:
        DefinitionError: if the handler does not take a context and these parameters.
    """
    if not callable(fun) or yields(fun):
        raise DefinitionError(f"{fun!r} is not a function, or yields")
    signature = inspect.signature(fun)
    try:
        signature.bind(*[None] * (len(names) + 1))
    except TypeError:
        raise DefinitionError(
            f"the function must take the arguments context, {', '.join(names)}; its signature is {signature}"
        ) from None
    taken = []
    for name, parameter in zip(names, list(signature.parameters.values())[1:], strict=False):
        try:
            annotation = parameter_annotation(fun, parameter)
        except Exception as error:
            raise DefinitionError(
                f"parameter {parameter.name}: its annotation {parameter.annotation!r} cannot be read: "
                f"{type(error).__name__}: {error}"
            ) from error
        if annotation is Any:
            raise DefinitionError(f"parameter {parameter.name}: annotate the {name} with its class")
        taken.append(checked_annotations(alternatives(annotation)))
    return taken


def named_after(
    fun: Callable[..., Any], handler: Callable[..., Any], annotation: Any = Any
) -> Callable[..., Any]:
    """Give ``handler``, which calls ``fun``, the name of ``fun`` for error texts, and annotate its value."""
    functools.update_wrapper(handler, fun)
    handler.__annotations__ = {"value": annotation}
    return handler


def report(fun: Any, error: DefinitionError, handler: Any = None) -> None:
    """Report an error in the definition of a user's function, with its place: collect it with others, or raise it.

    Args:
        fun: the user's function.
        error: the error.
        handler: the handler that calls the function; if the error text begins with its place, that is replaced.
    """
    text = error.message.removeprefix(f"{place_of_definition(handler)}: ")
    placed = DefinitionError(f"{place_of_definition(fun)}: {text}")
    if not collect(fun, placed):
        raise placed from None
