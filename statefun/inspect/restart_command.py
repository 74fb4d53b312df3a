# SPDX-License-Identifier: Apache-2.0
"""``statefun restart``: lets an application begin a new run in its process, from the last committed micro-batch."""

from __future__ import annotations

import argparse

from statefun.inspect.pausing import add_order, give_order
from statefun.runtime.checkpoint.orders import Order


def add_arguments(restart: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun restart`` to its parser."""
    add_order(restart)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun restart``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    give_order(options, Order.RESTART, "the application begins a new run")
