# SPDX-License-Identifier: Apache-2.0
"""The type of a registered function, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Decorated(Protocol[P, R_co]):
    """A registered function: the user's function with the attribute ``on``."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""

    def on(self, *takes: Any) -> Callable[[F], F]:
        """Return a decorator for the handler of values of these types."""
