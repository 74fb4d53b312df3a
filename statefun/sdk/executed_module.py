# SPDX-License-Identifier: Apache-2.0
"""Finds the module that is being executed, to which belongs whatever is registered meanwhile."""

from __future__ import annotations

import inspect


def executed_module() -> str:
    """Return the name of the module whose statements are being executed in this thread; empty if there is none.

    It is the one that an ``import`` waits for, also if the statement calls a function of another module.

    >>> import types
    >>> logic = types.ModuleType("logic")
    >>> exec("from statefun.sdk.executed_module import *; NAME = executed_module()", vars(logic))
    >>> logic.NAME
    'logic'
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))
