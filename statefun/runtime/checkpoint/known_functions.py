# SPDX-License-Identifier: Apache-2.0
"""The file ``functions.json`` of a checkpoint: the functions that were registered, and how they declare values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from statefun.runtime.checkpoint.declarations import (
    Declaration,
    Declarations,
    declarations_json,
    declarations_of,
    secret_names,
)
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.sdk.types import Type

FUNCTIONS_FILE = "functions.json"


def all_of_namespace(typename: str) -> str:
    """Return the typename that stands for all functions in the namespace of a typename.

    >>> all_of_namespace("com.example/greeter")
    'com.example/*'
    """
    return f"{typename.rpartition('/')[0]}/*"


@attrs.frozen
class KnownFunctions:
    """The functions that have been registered with a checkpoint or have left state in it.

    A renamed function keeps its *stored name*: the typename that it had first, with which the checkpoint stores
    its state and messages.
    """

    registered: frozenset[str] = frozenset()
    """The stored names of functions that were registered, or had waiting messages, at the last start."""
    with_state: Mapping[str, int] = attrs.field(factory=dict)
    """The number of addresses with state, by the stored name of functions that are not registered. Some of the
    state may have expired since it was counted."""
    counted: str = ""
    """The day on which the addresses with state were counted; empty if the day is unknown."""
    declarations: Declarations = attrs.field(factory=dict)
    """All declarations of values at any start until now."""
    names: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """The names of each function that was renamed, by its stored name: the one that it had last is the last."""
    secret_types: frozenset[str] = frozenset()
    """The typenames of the types that were secret in the last program that declared them."""

    @property
    def stored_names(self) -> set[str]:
        """The stored names of all functions that the checkpoint knows."""
        return {*self.registered, *self.with_state, *self.declarations, *self.names}

    def stored_name(self, typename: str) -> str:
        """Return the stored name of the function that has, or had, a typename; the typename if none had it."""
        for stored, names in self.names.items():
            if typename in names:
                return stored
        return typename

    def present_name(self, stored: str) -> str:
        """Return the typename that the function with a stored name had last."""
        return self.names[stored][-1] if stored in self.names else stored

    def declared(self, stored: str) -> Mapping[str, Sequence[Declaration]]:
        """Return the declarations of the values of a function: its own, or those of ``namespace/*`` if it is one of them.

        >>> values = {"count": [Declaration(0, "io.statefun.types/int")]}
        >>> KnownFunctions(declarations={"t/*": values}).declared("t/f") == values
        True
        """
        name = stored if stored in self.stored_names else all_of_namespace(stored)
        return self.declarations.get(name, {})

    def secret_values(self, stored: str) -> frozenset[str]:
        """Return the names of a function's secret values, also if ``namespace/*`` has, or had, declared them."""
        names = (stored, all_of_namespace(stored))
        return frozenset[str]().union(*(secret_names(self.declarations.get(n, {})) for n in names))

    def with_types(self, types: Iterable[Type[Any]]) -> KnownFunctions:
        """Return a copy that says which types of the present program are secret; other types stay as they were."""
        present = list(types)
        own = {type_.typename for type_ in present}
        secret = {type_.typename for type_ in present if type_.is_secret}
        former = {name for name in self.secret_types if name not in own}
        return attrs.evolve(self, secret_types=frozenset(secret | former))

    def to_json(self) -> dict[str, Any]:
        """Encode the functions as a dict that can be written as JSON."""
        return {
            "registered": sorted(self.registered),
            "left": dict(self.with_state),
            "counted": self.counted,
            "declarations": declarations_json(self.declarations),
            "names": dict(self.names),
            "secret_types": sorted(self.secret_types),
        }

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> KnownFunctions:
        """Decode functions that :meth:`to_json` has encoded.

        >>> known = KnownFunctions(frozenset({"t/f"}), names={"t/f": ["t/g"]})
        >>> KnownFunctions.of_json(known.to_json()) == known
        True
        """
        return cls(
            frozenset(content["registered"]),
            dict(content["left"]),
            content.get("counted", ""),
            declarations_of(content.get("declarations", {})),
            content.get("names", {}),
            frozenset(content.get("secret_types", ())),
        )


def write_functions(checkpoint: Folder, functions: KnownFunctions) -> None:
    """Write the known functions into a checkpoint's file ``functions.json`` if they have changed."""
    if functions != known_functions(checkpoint):
        content = json.dumps(functions.to_json()).encode()
        write_framed(checkpoint, FUNCTIONS_FILE, content)


def known_functions(checkpoint: Folder) -> KnownFunctions | None:
    """Return the functions that a checkpoint knows; None if no run has stored them in it yet."""
    try:
        return KnownFunctions.of_json(json.loads(read_framed(checkpoint, FUNCTIONS_FILE)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(checkpoint, FUNCTIONS_FILE, error) from error
