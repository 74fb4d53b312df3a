# SPDX-License-Identifier: Apache-2.0
"""``statefun state export`` and ``statefun state import``: all state as a Parquet file, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from statefun.console.command_parser import Actions
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint, positive_number, usable
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.terminal.table import counted

ACTIONS = ("export", "import")


def add_actions(actions: Actions) -> None:
    """Add the actions ``export`` and ``import`` to the command ``state``."""
    export = actions.add(
        "export",
        "write the state of all addresses to a Parquet file",
        "statefun state export .statefun/app state.parquet",
    )
    add_checkpoint(export)
    export.add_argument("file", type=Path, help="the new file")
    import_ = actions.add(
        "import",
        "make a new checkpoint from a file that 'export' has written",
        "statefun state import state.parquet .statefun/app",
    )
    import_.add_argument("file", type=Path, help="the file")
    import_.add_argument("checkpoint", help="an empty folder, or one that does not exist")
    import_.add_argument(
        "--state-partitions",
        type=positive_number,
        metavar="N",
        help="into how many parts the state is divided (default: as many as there are cores)",
    )
    for action in (export, import_):
        action.add_json()


def run_action(options: argparse.Namespace) -> None:
    """Run one of the actions.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the action fails.
    """
    # They need Spark, which takes long to import.
    from statefun.inspect.state_export import export_state, import_state  # noqa: PLC0415 - see above

    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        if options.action == "import":
            done = import_state(options.file, checkpoint, options.state_partitions)
            if options.json:
                print_json({"addresses": done.addresses, "batch": done.batch})
                return
            print(
                f"checkpoint {checkpoint.shown} has {counted(done.addresses, 'address', 'es')}, and goes on where "
                f"micro-batch {done.batch} of the former checkpoint has ended"
            )
            return
        done = export_state(checkpoint, options.file)
    if options.json:
        print_json(
            {
                "addresses": done.addresses,
                "batch": done.batch,
                "can_be_imported": not done.reason,
                "reason": done.reason or None,
            }
        )
        return
    print(
        f"{options.file} has {counted(done.addresses, 'address', 'es')} as of micro-batch {done.batch}, including "
        "those of timers and waiting messages"
    )
    if done.reason:
        print(f"no checkpoint can be made from it, since {done.reason}")
