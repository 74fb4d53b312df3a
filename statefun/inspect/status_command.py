# SPDX-License-Identifier: Apache-2.0
"""``statefun status``: prints whether an application runs, the progress of its micro-batches, and paused parts."""

from __future__ import annotations

import argparse
from datetime import timedelta

from statefun.console.argument_types import argument
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint, is_in_use, usable
from statefun.inspect.pausing import parts_of
from statefun.module.yaml.durations import parse_duration
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.release.committed_progress import CommittedProgress
from statefun.runtime.terminal.table import print_table

NOT_HEALTHY = 1
"""The exit code of ``--check`` if the application is not known to run, or makes no progress."""


def add_arguments(status: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun status`` to its parser."""
    add_checkpoint(status)
    status.add_argument("--json", action="store_true", help="print the status as JSON")
    status.add_argument(
        "--check",
        action="store_true",
        help=f"end with the exit code {NOT_HEALTHY} if the application does not run, if no lock shows whether it "
        "does, or if a micro-batch takes longer than --patience",
    )
    status.add_argument(
        "--patience",
        type=argument(parse_duration),
        default=timedelta(minutes=5),
        help="how long a micro-batch may take for --check, such as 90s (default: 5m)",
    )


def run_command(options: argparse.Namespace) -> int:
    """Run ``statefun status``; return its exit code.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the checkpoint cannot be read.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        status = _status(checkpoint)
    if options.json:
        print_json(status.as_json())
    else:
        _print(status)
    is_healthy = bool(status.is_running) and not status.is_stuck(options.patience)
    return 0 if is_healthy or not options.check else NOT_HEALTHY


def _status(checkpoint: Folder) -> CommittedProgress:
    parts, paused = parts_of(checkpoint)
    return CommittedProgress.of(checkpoint, parts, paused, is_running=is_in_use(checkpoint))


def _print(status: CommittedProgress) -> None:
    why = " (checkpoint-lock=none: no lock shows whether it runs)"
    print(f"application: {status.state()}{why if status.is_running is None else ''}")
    under_way = ""
    if status.planned_for is not None:
        seconds = status.planned_for.total_seconds()
        under_way = f"; micro-batch {status.batch + 1} was planned {seconds:.0f} s ago"
    committed = "none" if status.batch < 0 else str(status.batch)
    print(f"newest committed micro-batch: {committed}{under_way}")
    print(f"micro-batches in the outbox: {status.unpublished}")
    rows = [(kind, name, status.state(kind, name)) for kind, name in status.parts]
    print_table([("part", "id", "state"), *rows])
