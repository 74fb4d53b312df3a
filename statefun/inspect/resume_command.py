# SPDX-License-Identifier: Apache-2.0
"""``statefun resume``: lets an ingress, an egress or an application that was paused go on."""

from __future__ import annotations

import argparse

from statefun.inspect.pausing import add_part, change_part


def add_arguments(resume: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun resume`` to its parser."""
    add_part(resume)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun resume``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    change_part(options, is_paused=False)
