# SPDX-License-Identifier: Apache-2.0
"""``statefun state types``: prints how the functions of a checkpoint have declared their values, and since when."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from statefun.console.json_output import print_json
from statefun.runtime.checkpoint.declarations import Declaration
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.known_functions import KnownFunctions, known_functions
from statefun.runtime.stored.known_values import nearest
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.printable import printable
from statefun.sdk.secrecy import SECRET


def print_types(checkpoint: Folder, options: argparse.Namespace) -> None:
    """Print the declarations of values in a checkpoint.

    Args:
        checkpoint: the checkpoint.
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if there is no such checkpoint, or it does not know the function.
        CheckpointError: if the checkpoint's list of functions is damaged.
    """
    known = known_functions(checkpoint)
    if known is None:
        raise missing_checkpoint(checkpoint)
    stored_names = sorted(known.stored_names, key=known.present_name)
    if options.type is not None:
        if known.stored_name(options.type) not in stored_names:
            names = map(known.present_name, stored_names)
            hint = nearest(options.type, names, "known functions")
            raise ConfigurationError(f"there is no function {options.type}{hint}")
        stored_names = [known.stored_name(options.type)]
    if options.json:
        print_json({"functions": [_json(known, stored) for stored in stored_names]})
        return
    rows = [row for stored in stored_names for row in _rows(known, stored)]
    print_table([("function", "value", "type", "since batch", "reads also", "expires"), *rows])
    for stored in stored_names:
        for text in _about_name(known, stored):
            print(text)
    values = [own for stored in stored_names for own in known.declarations.get(stored, {}).values()]
    declared = [own for own in values if own[-1].typename]
    print(f"{counted(len(stored_names), 'function')}, {counted(len(declared), 'value')}")


def _rows(known: KnownFunctions, stored: str) -> Iterator[tuple[str, ...]]:
    name = printable(known.present_name(stored))
    values = known.declarations.get(stored, {})
    if not values:
        yield name, "-", "-", "-", "-", "-"
    for value, own in values.items():
        for each in own:
            type_ = f"{each.typename or '(removed)'}{' ' + SECRET if each.secret else ''}"
            yield name, value, type_, str(each.since), *_details(each)


def _details(declaration: Declaration) -> tuple[str, str]:
    also = ", ".join([*declaration.renamed_from, *declaration.older])
    return also or "-", declaration.expires or "-"


def _about_name(known: KnownFunctions, stored: str) -> Iterator[str]:
    name = printable(known.present_name(stored))
    former = _former_names(known, stored)
    if former:
        yield f"function {name} was {', '.join(map(printable, former))} before, and is stored as {printable(stored)}"
    if stored not in known.registered:
        yield f"function {name} is not registered any more"


def _former_names(known: KnownFunctions, stored: str) -> list[str]:
    names = dict.fromkeys((stored, *known.names.get(stored, ())))
    return [name for name in names if name != known.present_name(stored)]


def _json(known: KnownFunctions, stored: str) -> dict[str, Any]:
    values = known.declarations.get(stored, {})
    return {
        "type": known.present_name(stored),
        "former_names": _former_names(known, stored),
        "stored_as": stored,
        "registered": stored in known.registered,
        "values": {
            name: {
                "type": own[-1].typename or None,
                "declarations": [
                    {
                        "since_batch": each.since,
                        "type": each.typename or None,
                        "older_types": list(each.older),
                        "renamed_from": list(each.renamed_from),
                        "expires": each.expires or None,
                        "secret": each.secret,
                    }
                    for each in own
                ],
            }
            for name, own in values.items()
        },
    }
