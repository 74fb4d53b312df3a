# SPDX-License-Identifier: Apache-2.0
"""``statefun ingress``: lists how far a checkpoint has read its ingresses; renames and forgets ingresses."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import (
    add_checkpoint,
    add_no_lock,
    check_lock,
    usable,
)
from statefun.inspect.ingress_positions import forget_ingress, ingress_positions, rename_ingress
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import can_lock
from statefun.runtime.terminal.table import print_table
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.shortening import shortened

_HEAD = ("ingress", "state", "next offset")
_WIDEST = 200
"""How many characters of an ingress's offsets the table shows at most."""


def add_arguments(ingress: CommandParser) -> None:
    """Add the actions of ``statefun ingress`` to its parser."""
    actions = ingress.actions()
    list_ = actions.add(
        "list",
        "print how far the checkpoint has read each ingress",
        "statefun ingress list .statefun/app",
    )
    rename = actions.add(
        "rename",
        "let an ingress with another id go on where this one has stopped, while the application does "
        "not run",
        "statefun ingress rename .statefun/app com.example/users com.example/people",
    )
    forget = actions.add(
        "forget",
        "delete the offsets of an ingress, while the application does not run: if it is declared "
        "again, it begins at its startup position",
        "statefun ingress forget .statefun/app com.example/users --yes",
    )
    for action in (list_, rename, forget):
        add_checkpoint(action)
        action.add_json()
    for action in (rename, forget):
        action.add_argument("ingress", help="the ingress, as 'list' prints it")
    rename.add_argument("name", help="its new id; for an ingress of a connector, with the kind")
    forget.add_argument(
        "--yes",
        action="store_true",
        help="delete the offsets; without it, the command only prints what it would delete",
    )
    for action in (rename, forget):
        add_no_lock(action)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun ingress``.

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
