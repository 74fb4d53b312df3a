# SPDX-License-Identifier: Apache-2.0
"""``statefun stop``: ends a running application as a signal does, but with the exit code of success."""

from __future__ import annotations

import argparse

from statefun.inspect.pausing import add_order, give_order
from statefun.runtime.checkpoint.orders import Order


def add_arguments(stop: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun stop`` to its parser."""
    add_order(stop)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun stop``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    give_order(options, Order.STOP, "the application ends")
