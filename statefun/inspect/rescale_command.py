# SPDX-License-Identifier: Apache-2.0
"""``statefun rescale``: divides the state of a checkpoint into another number of partitions."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import (
    add_checkpoint,
    add_no_lock,
    check_lock,
    positive_number,
    usable,
)
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import can_lock


def add_arguments(rescale: CommandParser) -> None:
    """Add the arguments of ``statefun rescale`` to its parser."""
    add_checkpoint(rescale)
    rescale.add_argument(
        "--state-partitions",
        type=positive_number,
        required=True,
        metavar="N",
        help="the number of partitions: as many as the cores that the application will use",
    )
    add_no_lock(rescale)
    rescale.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun rescale``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    # It needs Spark, which takes long to import.
    from statefun.inspect.state_partitions import rescale  # noqa: PLC0415 - see above

    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        check_lock(checkpoint, no_lock=options.no_lock)
        done = rescale(checkpoint, options.state_partitions, has_lock=can_lock(checkpoint))
    if options.json:
        print_json({"before": done.before, "after": done.after, "batch": done.batch})
    elif done.before == done.after:
        print(f"the state in {checkpoint.shown} is divided into {done.after} partitions already")
    else:
        print(
            f"the state in {checkpoint.shown} is divided into {done.after} partitions, and no longer into "
            f"{done.before}, from micro-batch {done.batch} on"
        )
