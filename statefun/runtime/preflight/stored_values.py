# SPDX-License-Identifier: Apache-2.0
"""Finds stored values that functions can no longer read, before the application handles a message.

The values of an address are decoded when a function reads them, maybe months after the type of a value has
changed. This check reads the whole state, but only at a start whose functions declare a value in another way
than at the start before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from statefun.runtime.checkpoint.known_functions import Shapes
from statefun.sdk.address import Address
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.raised import line_of
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import ValueSpec


@attrs.define
class _ValueGroup:
    """Counts the stored values that have one function type, name and type, and those that are unreadable."""

    count: int = 0
    unreadable: int = 0
    example: str = ""
    """An address whose value cannot be decoded, and why; empty if all values can be decoded."""


def shapes_of(functions: StatefulFunctions) -> dict[str, dict[str, str]]:
    """Return the declarations of the functions' values, by function type and value name."""
    return {
        str(function.typename): {
            name: f"{spec.type.typename} {spec.type.shape()}".strip()
            for name, spec in function.specs.items()
        }
        for function in functions
        if function.specs
    }


def changed_values(stored_shapes: Shapes, present_shapes: Shapes) -> list[tuple[str, str]]:
    """Return the function type and name of each value that is declared in another way than before."""
    return [
        (typename, name)
        for typename, shapes in present_shapes.items()
        for name, shape in shapes.items()
        if stored_shapes.get(typename, {}).get(name, shape) != shape
    ]


class StoredValues:
    """The stored values of an application's functions, as found in one pass through the whole state.

    Args:
        state: the addresses of a checkpoint and their values by name.
        functions: the functions that continue with the checkpoint.
    """

    def __init__(
        self,
        state: Iterable[tuple[Address, Mapping[str, TypedValue]]],
        functions: StatefulFunctions,
    ) -> None:
        self._functions = functions
        groups: dict[tuple[str, str, str], _ValueGroup] = {}
        for address, values in state:
            for name, value in values.items():
                group = groups.setdefault((address.typename, name, value.typename), _ValueGroup())
                group.count += 1
                spec = self._spec(address.typename, name)
                if spec is not None and spec.type.reads(value.typename):
                    _try(spec, address, value, group)
        self._groups = sorted(groups.items())

    def unreadable(self, among: Collection[tuple[str, str]] | None = None) -> Iterator[str]:
        """Yield a text for each function type, name and type of stored values that functions cannot read.

        Args:
            among: the function types and names of the values to check; None for all values.
        """
        for (typename, name, value_type), group in self._groups:
            if among is not None and (typename, name) not in among:
                continue
            spec = self._spec(typename, name)
            text = _described(typename, name, value_type, group)
            if spec is not None and not spec.type.reads(value_type):
                yield (
                    f"{text}, but declared as {spec.type.typename}; use another name, or a type with "
                    "upgrades= for the stored type"
                )
            elif group.unreadable:
                yield (
                    f"{text}, and {group.unreadable:,} of them cannot be decoded "
                    f"({group.example}); give new fields defaults, or declare a type of another "
                    "name with upgrades= for the stored type"
                )

    def undeclared(self) -> Iterator[str]:
        """Yield a text for each name and type of stored values that a registered function no longer declares."""
        for (typename, name, value_type), group in self._groups:
            function = self._functions.find(typename)
            # A function that runs elsewhere declares its values when it is called.
            if function is not None and function.transport is None and name not in function.specs:
                text = _described(typename, name, value_type, group)
                yield f"{text}, and the function no longer declares it"

    def _spec(self, typename: str, name: str) -> ValueSpec | None:
        function = self._functions.find(typename)
        return None if function is None else function.specs.get(name)


def _described(typename: str, name: str, value_type: str, group: _ValueGroup) -> str:
    count = f"{group.count:,} addresses"
    return f"value {name!r} of function {typename} is stored at {count} as {value_type}"


def _try(spec: ValueSpec, address: Address, value: TypedValue, group: _ValueGroup) -> None:
    try:
        spec.type.decode(value.typename, value.value or b"")
    except Exception as error:  # noqa: BLE001 - whatever a user's deserializer raises
        group.unreadable += 1
        group.example = group.example or f"{address}: {line_of(error)}"
