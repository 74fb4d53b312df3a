# SPDX-License-Identifier: Apache-2.0
"""The file ``functions.json`` of a checkpoint: the functions that were registered, and how they declare values."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

Shapes = Mapping[str, Mapping[str, str]]
"""The declarations of stored values, by function type and value name.

A declaration is the name of the value's type, and a text that differs between versions of this type."""
FUNCTIONS_FILE = "functions.json"


@attrs.frozen
class KnownFunctions:
    """The functions that have been registered with a checkpoint or have left state in it."""

    registered: frozenset[str]
    """The typenames of functions that were registered, or had waiting messages, at the last start."""
    with_state: dict[str, int]
    """The number of addresses with state, by the typename of functions that are not registered. Some of the
    state may have expired since it was counted."""
    counted: str
    """The day on which the addresses with state were counted; empty if the day is unknown."""
    shapes: Shapes
    """The newest declaration of each value that a function has declared at any start until now."""


def write_functions(checkpoint: Folder, functions: KnownFunctions) -> None:
    """Write the known functions into a checkpoint's file ``functions.json`` if they have changed."""
    if functions != known_functions(checkpoint):
        content = {
            "registered": sorted(functions.registered),
            "left": functions.with_state,
            "counted": functions.counted,
            "values": functions.shapes,
        }
        write_framed(checkpoint, FUNCTIONS_FILE, json.dumps(content).encode())


def known_functions(checkpoint: Folder) -> KnownFunctions | None:
    """Return the functions that a checkpoint knows; None if no run has stored them in it yet."""
    try:
        content = json.loads(read_framed(checkpoint, FUNCTIONS_FILE))
        return KnownFunctions(
            frozenset(content["registered"]),
            dict(content["left"]),
            content.get("counted", ""),
            content.get("values", {}),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, FUNCTIONS_FILE, error) from error
