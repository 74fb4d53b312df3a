# SPDX-License-Identifier: Apache-2.0
"""The names under which functions are counted, which are only so many."""

from __future__ import annotations

from collections.abc import Iterable

from statefun.runtime.checkpoint.known_functions import all_of_namespace

_MOST_FUNCTIONS = 1000
"""How many functions that are not declared by name have counts of their own."""
_MOST_FLOWS = 10_000
"""For how many pairs of a function and a target, not both declared by name, messages are counted separately."""
_MOST_NAMESPACES = 1000
"""How many namespaces have counts of their own for their further functions."""
_ALL = "*/*"
"""The name under which the further functions of further namespaces are counted."""


class CountedNames:
    """Decides under which name a function is counted, so that the number of series of metrics is limited.

    An endpoint ``namespace/*`` has a function of any name. The first names are counted as they are, and all later ones
    together, as all functions of their namespace; records of a replay topic may even have any namespace. A function that is declared by name is always counted as it is.

    Args:
        declared: the typenames of the declared functions.
    """

    def __init__(self, declared: Iterable[str]) -> None:
        self._declared = frozenset(declared)
        self._others: set[str] = set()
        """The names that are not declared, but are counted as they are."""
        self._namespaces: set[str] = set()
        """The names that stand for all further functions of a namespace."""
        self._flows: set[tuple[str, str]] = set()
        """The functions and their targets that are counted as they are, besides pairs of declared ones."""

    def function(self, typename: str) -> str:
        """Return the name under which a function is counted."""
        if typename in self._declared or typename in self._others:
            return typename
        if len(self._others) == _MOST_FUNCTIONS:
            return self._namespace(typename)
        self._others.add(typename)
        return typename

    def target(self, function: str, typename: str) -> str:
        """Return the name under which the messages that a function has sent to another one are counted.

        Args:
            function: the name under which the first function is counted.
            typename: the typename of the other function.
        """
        target = self.function(typename)
        flow = function, target
        if flow in self._flows or self._declared.issuperset(flow):
            return target
        if len(self._flows) == _MOST_FLOWS:
            return self._namespace(typename)
        self._flows.add(flow)
        return target

    def _namespace(self, typename: str) -> str:
        name = all_of_namespace(typename)
        if name not in self._namespaces:
            if len(self._namespaces) == _MOST_NAMESPACES:
                return _ALL
            self._namespaces.add(name)
        return name
