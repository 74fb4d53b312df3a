# SPDX-License-Identifier: Apache-2.0
"""The attribute ``on`` of registered functions, and the type of these functions for type checkers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from statefun.sdk.errors import DefinitionError
from statefun.sdk.flaws import collect

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class Decorated(Protocol[P, R_co]):
    """A registered function: the user's function with the attribute ``on``, which adds handlers."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""

    def on(self, *takes: Any) -> Callable[[F], F]:
        """Return a decorator that adds a function as the handler for values of the types ``takes``."""


class On:
    """The attribute ``on`` of a registered function: makes decorators that add handlers to the function.

    Args:
        register: adds a handler, given the types that it takes and its function; None in a worker, which has no
            registry with the function.
        other: the attribute ``on`` that the function has from a registration under another typename.
    """

    def __init__(
        self,
        register: Callable[[Sequence[Any], Any], None] | None = None,
        other: On | None = None,
    ) -> None:
        self._register = register
        self._other = other

    def __call__(self, *takes: Any) -> Callable[[F], F]:
        """Return a decorator that adds a function as the handler for values of the types ``takes``."""
        if self._register is None:
            raise DefinitionError(
                "handlers can only be added in the program that registers the function"
            )
        register = self._register

        def decorate(fun: F) -> F:
            try:
                register(takes, fun)
            except DefinitionError as error:
                if not collect(fun, error):
                    raise
                return fun
            if self._other is not None:
                self._other(*takes)(fun)
            return fun

        return decorate

    def __reduce__(self) -> tuple[type[On], tuple[()]]:
        return On, ()  # workers need no registry with the function
