# SPDX-License-Identifier: Apache-2.0
"""``statefun snapshot``: copies a checkpoint, also while its application runs."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint
from statefun.inspect.copying import copying
from statefun.inspect.snapshots import take_snapshot
from statefun.runtime.checkpoint.folder import Folder


def add_arguments(snapshot: CommandParser) -> None:
    """Add the arguments of ``statefun snapshot`` to its parser."""
    add_checkpoint(snapshot)
    snapshot.add_argument(
        "target",
        help="an empty folder, or one with an earlier snapshot of the checkpoint: then only new "
        "files of states are copied",
    )
    snapshot.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun snapshot``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    checkpoint, target = Folder.at(options.checkpoint), Folder.at(options.target)
    with copying() as progress:
        snapshot = take_snapshot(checkpoint, target, progress)
    if options.json:
        print_json({"snapshot": target.shown, "batch": snapshot.batch})
        return
    print(f"{target.shown} has the checkpoint as of micro-batch {snapshot.batch}")
