# SPDX-License-Identifier: Apache-2.0
"""``statefun pause``: lets an ingress, an egress or a whole application wait, until it is resumed."""

from __future__ import annotations

import argparse

from statefun.inspect.pausing import add_part, change_part


def add_arguments(pause: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun pause`` to its parser."""
    add_part(pause)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun pause``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    change_part(options, is_paused=True)
