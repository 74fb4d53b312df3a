# SPDX-License-Identifier: Apache-2.0
"""``statefun ingress``: lists how far a checkpoint has read its ingresses; renames and forgets ingresses."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.inspect.checkpoint_options import add_checkpoint, add_no_lock


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
    # They need Spark's classes and Kafka's client, for which the help would wait.
    from statefun.inspect.ingress_actions import run_action  # noqa: PLC0415 - see above

    run_action(options)
