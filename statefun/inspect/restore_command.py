# SPDX-License-Identifier: Apache-2.0
"""``statefun restore``: makes a checkpoint from a snapshot."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.copying import copying
from statefun.inspect.snapshots import is_noted, restore_snapshot
from statefun.runtime.checkpoint.folder import Folder


def add_arguments(restore: CommandParser) -> None:
    """Add the arguments of ``statefun restore`` to its parser."""
    restore.add_argument("snapshot", help="the folder of the snapshot, or its URI")
    restore.add_argument("checkpoint", help="an empty folder, or one that does not exist")
    restore.add_argument(
        "--records-may-repeat",
        action="store_true",
        help="let exactly-once egresses publish again what they have published after the snapshot; "
        "without it, a start is refused if they have published anything",
    )
    restore.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun restore``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    snapshot, checkpoint = Folder.at(options.snapshot), Folder.at(options.checkpoint)
    may_repeat = options.records_may_repeat
    with copying() as progress:
        facts = restore_snapshot(snapshot, checkpoint, progress, may_repeat=may_repeat)
    if options.json:
        print_json(
            {
                "checkpoint": checkpoint.shown,
                "batch": facts.batch,
                "created": facts.created.isoformat(),
                "records_may_repeat": may_repeat,
            }
        )
        return
    created = f"{facts.created:%Y-%m-%d %H:%M:%S} UTC"
    print(f"{checkpoint.shown} goes on after micro-batch {facts.batch} ({created})")
    if may_repeat:
        print(
            "records that exactly-once egresses have published since then may be published again; make sure that "
            "no application runs with the former checkpoint, or with another one that was restored from the snapshot"
        )
        if not is_noted(snapshot, checkpoint):
            print(
                f"{snapshot.shown} cannot be written, so a later checkpoint from it will not end the transactions of this "
                "one: if this one is lost as well, readers of committed records may wait until they time out"
            )
