# SPDX-License-Identifier: Apache-2.0
"""``statefun snapshot`` and ``statefun restore``: copy a checkpoint, and make a checkpoint from a copy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from statefun.inspect.checkpoint_options import add_checkpoint
from statefun.inspect.snapshots import Progress, restore_snapshot, take_snapshot
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.terminal.status_line import StatusLine, renews_lines
from statefun.sdk.errors import CheckpointError


def add_commands(commands: Any) -> None:
    """Add the commands ``snapshot`` and ``restore`` to the parser of the command line."""
    snapshot = commands.add_parser(
        "snapshot", help="copy a checkpoint, also while its application runs"
    )
    add_checkpoint(snapshot)
    snapshot.add_argument(
        "target",
        help="an empty folder, or one with an earlier snapshot of the checkpoint: then only new "
        "files of states are copied",
    )
    restore = commands.add_parser("restore", help="make a new checkpoint from a snapshot")
    restore.add_argument("snapshot", help="the folder of the snapshot, or its URI")
    restore.add_argument("checkpoint", help="an empty folder, or one that does not exist")
    restore.add_argument(
        "--records-may-repeat",
        action="store_true",
        help="let exactly-once egresses publish again what they have published after the snapshot; "
        "without it, a start is refused if they have published anything",
    )


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun snapshot`` or ``statefun restore``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    checkpoint = Folder.at(options.checkpoint)
    try:
        if options.command == "snapshot":
            _snapshot(checkpoint, Folder.at(options.target))
        else:
            _restore(Folder.at(options.snapshot), checkpoint, may_repeat=options.records_may_repeat)
    except OSError as error:
        raise CheckpointError(f"the files cannot be copied: {error}") from error


def _snapshot(checkpoint: Folder, target: Folder) -> None:
    with _shown_progress() as progress:
        snapshot = take_snapshot(checkpoint, target, progress)
    print(f"{target.shown} has the checkpoint as of micro-batch {snapshot.batch}")


def _restore(snapshot: Folder, checkpoint: Folder, *, may_repeat: bool) -> None:
    with _shown_progress() as progress:
        facts = restore_snapshot(snapshot, checkpoint, progress, may_repeat=may_repeat)
    created = f"{facts.created:%Y-%m-%d %H:%M:%S} UTC"
    print(f"{checkpoint.shown} goes on after micro-batch {facts.batch} ({created})")
    if may_repeat:
        print(
            "records that exactly-once egresses have published since then may be published again; make sure that "
            "no application runs with the former checkpoint"
        )


@contextmanager
def _shown_progress() -> Iterator[Progress]:
    """Return a function that shows on the terminal, if there is one, how much is copied."""
    if not renews_lines(sys.stderr):
        yield lambda *_: None
        return
    line = StatusLine(sys.stderr)
    try:
        yield lambda done, total: line.show(f"{done:,} of {total:,} bytes copied")
    finally:
        line.clear()
