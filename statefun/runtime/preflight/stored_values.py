# SPDX-License-Identifier: Apache-2.0
"""Finds stored values that functions can no longer read, before the application handles a message.

The values of an address are decoded when a function reads them, maybe months after the type of a value has
changed. This check reads the whole state, but only at a start whose functions declare a value in another way
than at the start before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from statefun.engine.renamed import PresentNames
from statefun.runtime.checkpoint.declarations import (
    Declaration,
    Declarations,
    newest_declaration,
)
from statefun.runtime.terminal.table import counted
from statefun.sdk.address import Address
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.secrecy import reason
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import IN_WINDOW, ValueSpec


@attrs.define
class _ValueGroup:
    """Counts stored values with the same function type, name and value type, and the unreadable ones among them."""

    count: int = 0
    unreadable: int = 0
    example: str = ""
    """An address whose value cannot be decoded, and why; empty if all values can be decoded."""


def changed_values(
    declarations: Declarations, functions: StatefulFunctions
) -> list[tuple[str, str]]:
    """Return the stored name of the function and the name of each value that is declared in another way than before.

    Args:
        declarations: the declarations of values at earlier starts.
        functions: the functions with the present declarations.
    """
    changed = []
    for function in functions:
        earlier = declarations.get(function.stored_name, {})
        for name, spec in function.specs.items():
            histories = [earlier[each] for each in (name, *spec.renamed_from) if each in earlier]
            newest = newest_declaration(histories[0]) if histories else None
            if newest is not None and not newest.reads_as(Declaration.of(spec, 0)):
                changed.append((function.stored_name, name))
    return changed


def dropped_names(
    declarations: Declarations, functions: StatefulFunctions
) -> dict[tuple[str, str], str]:
    """Return the values whose former names are no longer declared, by stored name of the function and former name."""
    dropped: dict[tuple[str, str], str] = {}
    for function in functions:
        earlier = declarations.get(function.stored_name, {})
        for spec in function.specs.values():
            names = [spec.name, *spec.renamed_from]
            for name in names:  # grows meanwhile
                former = [each for own in earlier.get(name, ()) for each in own.renamed_from]
                names += [each for each in dict.fromkeys(former) if each not in names]
            gone = set(names) - {*function.specs, *function.renamed_values}
            dropped |= {(function.stored_name, name): spec.name for name in sorted(gone)}
    return dropped


class StoredValues:
    """The stored values of an application's functions, as found in one pass through the whole state.

    Args:
        state: the addresses of a checkpoint and their values by name.
        functions: the functions that continue with the checkpoint.
        declarations: the declarations of values at earlier starts.
    """

    def __init__(
        self,
        state: Iterable[tuple[Address, Mapping[str, TypedValue]]],
        functions: StatefulFunctions,
        declarations: Declarations,
    ) -> None:
        self._functions = functions
        self._names = PresentNames(functions)
        self._dropped = dropped_names(declarations, functions)
        self._twice = Counter[tuple[str, str, str]]()
        """The number of addresses whose value is stored under its present name and a former one, by function type,
        present name and former name."""
        groups: dict[tuple[str, str, str], _ValueGroup] = {}
        for address, values in state:
            for name, value in values.items():
                if IN_WINDOW in name:  # there may be as many names as windows
                    continue
                group = groups.setdefault((address.typename, name, value.typename), _ValueGroup())
                group.count += 1
                spec = self._spec(address.typename, name)
                if spec is None:
                    continue
                if spec.type.reads(value.typename):
                    _try(spec, address, value, group)
                if name != spec.name and spec.name in values:
                    self._twice[address.typename, spec.name, name] += 1
        self._groups = sorted(groups.items())

    def unreadable(self, among: Collection[tuple[str, str]] | None = None) -> Iterator[str]:
        """Yield a text for each function type, name and type of stored values that functions cannot read.

        Args:
            among: the function types and names of the values to check; None for all values.
        """
        for (typename, name, value_type), group in self._groups:
            spec = self._spec(typename, name)
            declared_by = self._declared_by(typename)
            dropped = self._dropped.get((declared_by, name))
            present = (dropped or name) if spec is None else spec.name
            if among is not None and (declared_by, present) not in among:
                continue
            text = self._described(typename, name, value_type, group)
            if dropped is not None:
                yield (
                    f"{text}, and value {present!r}, which was renamed from it, no longer declares that; declare "
                    f"renamed_from={name!r} again"
                )
            elif spec is not None and not spec.type.reads(value_type):
                yield (
                    f"{text}, but declared as {spec.type.typename}; use another name, or add upgrades= for "
                    "the stored type"
                )
            elif group.unreadable:
                yield (
                    f"{text}, and {group.unreadable:,} of them cannot be decoded "
                    f"({group.example}); give new fields defaults, or declare a type of another "
                    "name with upgrades= for the stored type"
                )
        for (typename, name, former), count in sorted(self._twice.items()):
            if among is None or (self._declared_by(typename), name) in among:
                yield (
                    f"value {name!r} of function {self._names.typename(typename)} is declared as renamed from {former!r}, "
                    f"but values at {counted(count, 'address', 'es')} have both names; give one of the two another name"
                )

    def undeclared(self) -> Iterator[str]:
        """Yield a text for each name and type of stored values that a registered function no longer declares."""
        for (typename, name, value_type), group in self._groups:
            function = self._functions.find(typename)
            # A function that runs elsewhere declares its values when it is called.
            if function is None or function.transport is not None:
                continue
            if (
                self._spec(typename, name) is None
                and (function.stored_name, name) not in self._dropped
            ):
                text = self._described(typename, name, value_type, group)
                yield f"{text}, and the function no longer declares it"

    def _declared_by(self, typename: str) -> str:
        """Return the stored name of the function that declares the values of a type: maybe ``namespace/*``."""
        function = self._functions.find(typename)
        return typename if function is None else function.stored_name

    def _spec(self, typename: str, name: str) -> ValueSpec | None:
        """Return the spec of a value, given a present or former name of it."""
        function = self._functions.find(typename)
        if function is None:
            return None
        return function.specs.get(function.renamed_values.get(name, name))

    def _described(self, typename: str, name: str, value_type: str, group: _ValueGroup) -> str:
        count = counted(group.count, "address", "es")
        function = self._names.typename(typename)
        return f"value {name!r} of function {function} is stored at {count} as {value_type}"


def _try(spec: ValueSpec, address: Address, value: TypedValue, group: _ValueGroup) -> None:
    try:
        spec.type.decode(value.typename, value.value or b"")
    except Exception as error:  # noqa: BLE001 - whatever a user's deserializer raises
        group.unreadable += 1
        group.example = group.example or f"{address}: {reason(error, spec.type)}"
