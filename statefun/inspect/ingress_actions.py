# SPDX-License-Identifier: Apache-2.0
"""The actions of ``statefun ingress``."""

from __future__ import annotations

import argparse

from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import check_lock, usable
from statefun.inspect.ingress_positions import forget_ingress, ingress_positions, rename_ingress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import can_lock
from statefun.runtime.terminal.table import print_table
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.shortening import shortened

_HEAD = ("ingress", "state", "next offset")
_WIDEST = 200
"""How many characters of an ingress's offsets the table shows at most."""


def run_action(options: argparse.Namespace) -> None:
    """Run the action that the options name.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        if options.action == "list":
            _list(checkpoint, as_json=options.json)
            return
        check_lock(checkpoint, no_lock=options.no_lock)
        if options.action == "rename":
            rename_ingress(checkpoint, options.ingress, options.name, has_lock=can_lock(checkpoint))
            if options.json:
                print_json({"ingress": options.name, "former": options.ingress})
                return
            print(f"ingress {options.name} goes on where ingress {options.ingress} has stopped")
        else:
            _forget(checkpoint, options.ingress, is_sure=options.yes)
            if options.json:
                print_json({"forgotten": options.ingress})
                return
            print(
                f"the offsets of ingress {options.ingress} are deleted; if declared, it begins at its startup position"
            )


def _list(checkpoint: Folder, *, as_json: bool) -> None:
    positions = ingress_positions(checkpoint)
    if as_json:
        content = [
            {"ingress": each.name, "removed": not each.is_read, "offset": each.offset}
            for each in positions
        ]
        print_json(content)
        return
    rows = [
        (each.name, "read" if each.is_read else "removed", shortened(each.described(), _WIDEST))
        for each in positions
    ]
    print_table([_HEAD, *rows])


def _forget(checkpoint: Folder, name: str, *, is_sure: bool) -> None:
    positions = {each.name: each for each in ingress_positions(checkpoint)}
    if not is_sure and name in positions:
        raise ConfigurationError(
            f"the command would delete the offsets of ingress {name} ({positions[name].described()}); add --yes "
            "to delete them"
        )
    forget_ingress(checkpoint, name, has_lock=can_lock(checkpoint))
