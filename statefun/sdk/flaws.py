# SPDX-License-Identifier: Apache-2.0
"""Collects the ill-formed functions of a program while it is loaded, to report all of them at once."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from statefun.sdk.errors import DefinitionError


@attrs.frozen
class Flaw:
    """The error of an ill-formed function, and where the function is; lines and columns count from 1."""

    file: str
    line: int
    column: int
    error: DefinitionError


_flaws: ContextVar[list[Flaw] | None] = ContextVar("flaws", default=None)


@contextmanager
def collecting_flaws() -> Iterator[list[Flaw]]:
    """Collect the errors of functions that are decorated inside of the block, without raising them.

    >>> from statefun import StatefulFunctions
    >>> functions = StatefulFunctions()
    >>> with collecting_flaws() as flaws:
    ...     @functions.bind("no-namespace")
    ...     def greet(ctx, message):
    ...         pass
    >>> [flaw.line for flaw in flaws], len(functions)
    ([2], 0)
    """
    flaws: list[Flaw] = []
    token = _flaws.set(flaws)
    try:
        yield flaws
    finally:
        _flaws.reset(token)


def collect(fun: Any, error: DefinitionError) -> bool:
    """Collect the error of a decorated function, if possible; return whether it was collected.

    The result is False outside of :func:`collecting_flaws`, and if the file of the function is not
    known: then the error has to be raised.
    """
    flaws, code = _flaws.get(), getattr(fun, "__code__", None)
    if flaws is None or code is None:
        return False
    linecache.checkcache(code.co_filename)
    line = linecache.getline(code.co_filename, code.co_firstlineno)
    column = len(line) - len(line.lstrip()) + 1
    flaws.append(Flaw(code.co_filename, code.co_firstlineno, column, error))
    return True
