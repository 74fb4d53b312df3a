# SPDX-License-Identifier: Apache-2.0
"""``statefun watermark``: prints the watermark, what keeps it from rising, and since when."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.engine.watermark import EventProgress, Holder
from statefun.inspect.checkpoint_options import add_checkpoint, usable
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.ingress_order import INGRESSES
from statefun.runtime.ingress.feedback_offset import feedback_offset
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import CheckpointError
from statefun.sdk.printable import printable
from statefun.sdk.times import from_epoch_millis

_HEAD = ("ingress", "partition", "event time", "")


def add_arguments(watermark: CommandParser) -> None:
    """Add the arguments of ``statefun watermark`` to its parser."""
    add_checkpoint(watermark)
    watermark.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun watermark``; an application may run with the checkpoint meanwhile.

    Args:
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if there is no checkpoint.
        CheckpointError: if the checkpoint cannot be read, or has no event time.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        log = CommitLog(checkpoint)
        if not (checkpoint.has(INGRESSES) or log.query_id()):
            raise missing_checkpoint(checkpoint)
        progress = feedback_offset(log, log.newest()).event
    if progress is None:
        raise CheckpointError(
            f"{checkpoint.shown} has no event time: no ingress of its last micro-batch declares eventTime"
        )
    if options.json:
        print_json(progress.encode())
        return
    rows = [
        (each.ingress, printable(str(each)), _date(time), "idle" if each in progress.idle else "")
        for each, time in progress.newest.items()
    ]
    print_table([_HEAD, *rows])
    for line in _lines(progress):
        print(line)


def _lines(progress: EventProgress) -> list[str]:
    lines = [
        f"watermark: {'none yet' if progress.watermark is None else _date(progress.watermark)}"
    ]
    if progress.holder is not None:
        lines.append(
            f"held by {_named(progress.holder, progress)} since {_date(progress.holder.since)}"
        )
    if progress.released:
        lines.append(
            f"passed by: {counted(progress.released, 'message')} that held it for too long"
        )
    if progress.future:
        lines.append(f"from the future: {counted(progress.future, 'record')} that did not move it")
    return lines


def _named(holder: Holder, progress: EventProgress) -> str:
    name = printable(holder.name)
    match holder.kind:
        case "partition":
            return f"partition {name}, which is the furthest behind"
        case "unread":
            return f"partition {name}, of which no record is read yet"
        case "message":
            return f"a message to {name}, which is not delivered yet"
        case "waiting":
            count = counted(sum(progress.waiting.values()), "address", "es")
            return f"messages that wait for endpoints or long calls, at {count}"
        case "timer":
            return "messages of send_at that are due, and not delivered yet"
        case _:
            return "nothing: all partitions are idle"


def _date(millis: int) -> str:
    return from_epoch_millis(millis).isoformat(timespec="milliseconds")
