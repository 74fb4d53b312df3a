# SPDX-License-Identifier: Apache-2.0
"""Tells coroutine functions and generators from plain functions, by their definitions and by their results."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeGuard

from statefun.sdk.errors import DefinitionError


def is_coroutine_function(fun: Any) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Return whether a function, or the method ``__call__`` of another object, is a coroutine function."""
    return inspect.iscoroutinefunction(fun) or inspect.iscoroutinefunction(
        getattr(fun, "__call__", None)  # noqa: B004 - an instance with an async __call__
    )


def yields(fun: Any) -> bool:
    """Return whether a function, or the method ``__call__`` of another object, is a generator.

    Whether a decorator runs the generator that it wraps is known only when it returns: see :func:`refuse_coroutine`.
    """
    called = (fun, getattr(fun, "__call__", None))  # noqa: B004 - as above
    return any(inspect.isgeneratorfunction(e) or inspect.isasyncgenfunction(e) for e in called)


def refuse_coroutine(result: object) -> None:
    """Raise an error if a plain function has returned what nobody runs: a coroutine, another awaitable, or a generator.

    Raises:
        DefinitionError: if ``result`` is one.
    """
    if result is None:
        return
    name = getattr(result, "__qualname__", type(result).__name__)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
            name = f"coroutine {name}"
        raise DefinitionError(
            f"a plain function has returned the {name}, which nobody awaits; a function that wraps a coroutine "
            "function must be a coroutine function as well (async def)"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise DefinitionError(
            f"a function has returned the generator {name}, which nobody runs; a stateful function must not yield: "
            "it sends messages with ctx.send"
        )
