# SPDX-License-Identifier: Apache-2.0
"""The type of a registered function, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Decorated(Protocol[P, R_co]):
    """A registered function: the user's function with the attribute ``on``, which adds handlers."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""

    def on(self, *takes: Any) -> Callable[[F], F]:
        """Return a decorator that adds a function as the handler for values of the types ``takes``."""
