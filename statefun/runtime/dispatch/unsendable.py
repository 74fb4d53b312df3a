# SPDX-License-Identifier: Apache-2.0
"""Finds the object that prevents functions from being sent to Python workers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from statefun.runtime.spark_internals.closures import can_be_pickled, is_by_value
from statefun.sdk.errors import PlatformError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.raised import line_of


def unsendable(
    functions: StatefulFunctions, error: BaseException, named: Mapping[int, str]
) -> PlatformError:
    """Return the error for functions that cannot be pickled; it names the object that cannot be pickled.

    Args:
        functions: the functions of an application.
        error: the exception that pickling has raised.
        named: the names that are sent instead of some objects, by the ``id`` of the object.
    """
    for function in functions:
        for handler in function.handlers:
            for owner, name, value in _unpicklable(handler.fun, named, set()):
                return PlatformError(
                    f"function {function.typename} cannot be sent to Python workers: "
                    f"{_place(owner)} uses {name}, a {type(value).__module__}."
                    f"{type(value).__qualname__}, which cannot be pickled ({line_of(error)}); make it "
                    "at the top level of the program's file, or where it is first used"
                )
    return PlatformError(
        f"the functions cannot be sent to Python workers: {line_of(error)}; make what cannot be "
        "pickled, such as clients and locks, at the top level of the program's file"
    )


def _unpicklable(
    fun: Callable[..., Any], named: Mapping[int, str], visited: set[int]
) -> Iterator[tuple[Callable[..., Any], str, object]]:
    """Yield the objects that cannot be pickled and that a function uses, directly or through functions.

    Each object comes with the function that uses it, and with its name in that function. ``visited`` has the
    ids of the functions that were searched already.
    """
    if id(fun) in visited or id(fun) in named:
        return
    visited.add(id(fun))
    for name, value in _used(fun):
        if _is_picklable(value, named):
            continue
        if isinstance(value, FunctionType):
            yield from _unpicklable(value, named, visited)
        else:
            yield fun, name, value


def _used(fun: Callable[..., Any]) -> Iterator[tuple[str, object]]:
    """Yield the names and values of variables that a function uses, except its local variables."""
    function = inspect.unwrap(fun)
    if isinstance(function, FunctionType):
        variables = inspect.getclosurevars(function)
        yield from {**variables.nonlocals, **variables.globals}.items()
        yield from (function.__kwdefaults__ or {}).items()
        yield from (("a default value", each) for each in function.__defaults__ or ())
    else:  # an object with a method __call__, or a bound method
        yield "itself", getattr(function, "__self__", function)


def _is_picklable(value: object, named: Mapping[int, str]) -> bool:
    if isinstance(value, ModuleType) and not is_by_value(value.__name__):
        return True
    return can_be_pickled(value, named)


def _place(fun: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(fun), "__code__", None)
    name = getattr(fun, "__qualname__", repr(fun))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
