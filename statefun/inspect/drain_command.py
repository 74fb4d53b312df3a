# SPDX-License-Identifier: Apache-2.0
"""``statefun drain``: ends a running application once it has delivered and published everything that it has read."""

from __future__ import annotations

import argparse

from statefun.inspect.pausing import add_order, give_order
from statefun.runtime.checkpoint.orders import Order


def add_arguments(drain: argparse.ArgumentParser) -> None:
    """Add the arguments of ``statefun drain`` to its parser."""
    add_order(drain)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun drain``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    give_order(
        options,
        Order.DRAIN,
        "no more records are read; the application ends when everything is delivered and published",
    )
