# SPDX-License-Identifier: Apache-2.0
"""``statefun trace``: shows what has caused a record or an invocation, and what has come of it, as a tree."""

from __future__ import annotations

import argparse
from pathlib import Path

from statefun.console.argument_types import argument
from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint
from statefun.runtime.letters.letter_filter import past_moment


def add_arguments(trace: CommandParser) -> None:
    """Add the arguments of ``statefun trace`` to its parser."""
    add_checkpoint(trace)
    trace.add_argument(
        "what",
        metavar="RECORD|ADDRESS",
        help="a record of an ingress, of an egress or of the dead letters as TOPIC/PARTITION/OFFSET; or an address, whose "
        "newest invocation is meant",
    )
    trace.add_argument(
        "--at",
        type=argument(past_moment),
        metavar="TIME",
        help="the newest invocation of the address until then: 2026-05-04T12:30 in UTC, or a duration before now, such "
        "as 90min, 12h, 7d",
    )
    trace.add_argument(
        "--module",
        type=Path,
        action="append",
        help="a module file (default: module.yaml in this folder), or a program that declares its egresses, for records "
        "of egresses; may be repeated",
    )
    trace.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun trace``; an application may run with the checkpoint meanwhile.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the checkpoint or the record cannot be read, or has no trace.
    """
    # The help starts sooner without Kafka's client and pyarrow.
    from statefun.inspect.trace_report import found_trace, trace_lines  # noqa: PLC0415 - see above
    from statefun.runtime.stored.trace_search import trace_json  # noqa: PLC0415 - see above

    found = found_trace(options)
    if options.json:
        print_json(trace_json(found))
        return
    for line in trace_lines(*found):
        print(line)
