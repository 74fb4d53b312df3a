# SPDX-License-Identifier: Apache-2.0
"""Functions that take values of classes."""

from __future__ import annotations

from typing import Any

from statefun import Context, StatefulFunctions


def taking(*classes: Any) -> StatefulFunctions:
    """Register a function for values of each class: ``test.fns/0``, and so on."""
    registry = StatefulFunctions()
    for number, class_ in enumerate(classes):

        def fun(ctx: Context, value: Any) -> None: ...

        fun.__annotations__["value"] = class_
        registry.register(f"test.fns/{number}", fun)
    return registry
