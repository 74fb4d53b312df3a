# SPDX-License-Identifier: Apache-2.0
"""Finds the modules that are at work, to which belongs whatever is registered meanwhile."""

from __future__ import annotations

import inspect


def executing_modules() -> tuple[str, ...]:
    """Return the names of the modules whose code this thread is executing, in order.

    A module is one of them while it is imported, and during each call of its functions.

    >>> import types
    >>> logic = types.ModuleType("logic")
    >>> exec("from statefun.sdk.executing_modules import *; NAMES = executing_modules()", vars(logic))
    >>> "logic" in logic.NAMES
    True
    """
    names = set()
    frame = inspect.currentframe()
    while frame is not None:
        names.add(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return tuple(sorted(names))
