# SPDX-License-Identifier: Apache-2.0
"""``ctx.storage``: the values of an address as attributes."""

from __future__ import annotations

from typing import Any

from statefun.sdk.values import Values


class Storage:
    """The values of one address, by attribute.

    An unset value reads as None, and ``del`` deletes a value. A value is encoded when it is assigned:
    later changes inside of the assigned object are not stored.

    >>> from statefun import IntType, ValueSpec
    >>> storage = Storage(Values({"visits": ValueSpec("visits", IntType)}, {}))
    >>> storage.visits = (storage.visits or 0) + 1
    >>> storage.visits
    1
    >>> del storage.visits
    >>> storage.visits is None
    True
    """

    # Two underscores at both ends: never the name of a value.
    __slots__ = ("__statefun_values__",)

    __statefun_values__: Values

    def __init__(self, values: Values) -> None:
        object.__setattr__(self, "__statefun_values__", values)

    def __getattr__(self, name: str) -> Any:
        return self.__statefun_values__.read(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__statefun_values__.write(name, value)

    def __delattr__(self, name: str) -> None:
        self.__statefun_values__.delete(name)

    def __dir__(self) -> list[str]:
        return sorted(self.__statefun_values__.specs)
