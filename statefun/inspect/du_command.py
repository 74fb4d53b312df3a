# SPDX-License-Identifier: Apache-2.0
"""``statefun du``: prints how much space each part of a checkpoint takes, and what makes the part grow."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.ingress_order import INGRESSES, check_format
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import CheckpointError

_HEAD = ("part", "files", "bytes", "holds")


class CheckpointPart(NamedTuple):
    """A part of a checkpoint: files with the same purpose."""

    name: str
    holds: str
    """What the files hold, and with what their size grows."""
    patterns: tuple[str, ...]
    """Patterns of the files' paths, in which ``*`` also stands for folders; the first part that matches counts."""


PARTS = (
    CheckpointPart(
        "state: tables",
        "the states of all addresses: grows with their number and size",
        ("state/*.sst",),
    ),
    CheckpointPart(
        "state: changes",
        "the changes of the last hundred micro-batches: grows with their number of messages",
        ("state/*.changelog", "state/*.delta"),
    ),
    CheckpointPart(
        "state: snapshots",
        "lists of the tables of earlier versions, and small tables: grows with the tables",
        ("state/*",),
    ),
    CheckpointPart(
        "outbox",
        "effects that are not published and delivered yet: grows while an egress is down",
        ("outbox/*",),
    ),
    CheckpointPart(
        "connectors",
        "the progress of connectors: grows with the number of files that are read and kept",
        ("connectors/*",),
    ),
    CheckpointPart(
        "timers", "which seconds have pending timers: grows with their number", ("timers/*",)
    ),
    CheckpointPart(
        "long calls", "which addresses have long calls: grows with their number", ("calls/*",)
    ),
    CheckpointPart(
        "traces", "which message has caused which invocation: up to trace-journal", ("traces/*",)
    ),
    CheckpointPart(
        "Spark's logs",
        "the offsets and commits of the last hundred micro-batches",
        ("offsets/*", "commits/*", "sources/*", "metadata"),
    ),
    CheckpointPart(
        "repairs", "the log of changes of the state by hand: grows with each change", ("repairs/*",)
    ),
    CheckpointPart("sent", "messages of 'statefun send' that wait", ("sent/*",)),
    CheckpointPart(
        "playground",
        "messages and records of the playground that wait",
        ("playground.sqlite*",),
    ),
    CheckpointPart(
        "other",
        "what the next start has to know: ingresses, clusters, functions, runs",
        ("*",),
    ),
)
"""The parts of a checkpoint, in the order in which they are printed."""


class Usage(NamedTuple):
    """How much space a part of a checkpoint takes."""

    part: CheckpointPart
    files: int
    size: int
    """The size of the files in bytes."""


def usage(sizes: Mapping[str, int]) -> list[Usage]:
    """Return how much space each part of a checkpoint takes; parts without files are left out.

    Args:
        sizes: the sizes of all files of the checkpoint, in bytes, by their paths in it.

    >>> [(each.part.name, each.files, each.size) for each in usage({"outbox/7/manifest": 100, "metadata": 45})]
    [('outbox', 1, 100), ("Spark's logs", 1, 45)]
    """
    totals = {part.name: [0, 0] for part in PARTS}
    for path, size in sizes.items():
        total = totals[_part_of(path).name]
        total[0] += 1
        total[1] += size
    return [Usage(part, *totals[part.name]) for part in PARTS if totals[part.name][0]]


def add_arguments(du: CommandParser) -> None:
    """Add the arguments of ``statefun du`` to its parser."""
    add_checkpoint(du)
    du.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun du``; an application may run with the checkpoint meanwhile.

    Args:
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if there is no checkpoint.
        CheckpointError: if the checkpoint is not complete, or cannot be read.
    """
    checkpoint = Folder.at(options.checkpoint)
    try:
        check_format(checkpoint)
        if not checkpoint.has(INGRESSES):
            raise missing_checkpoint(checkpoint)
        parts = usage(checkpoint.sizes())
    except OSError as error:
        raise CheckpointError(f"checkpoint {checkpoint.shown} cannot be read: {error}") from error
    if options.json:
        print_json([_document(each) for each in parts])
        return
    print_table([_HEAD, *_rows(parts)])
    total = sum(each.size for each in parts)
    files = counted(sum(each.files for each in parts), "file")
    print(f"{total:,} bytes in {files} in {checkpoint.shown}")


def _rows(parts: Iterable[Usage]) -> list[tuple[str, ...]]:
    return [
        (each.part.name, f"{each.files:,}", f"{each.size:,}", each.part.holds) for each in parts
    ]


def _document(each: Usage) -> dict[str, object]:
    return {"part": each.part.name, "files": each.files, "bytes": each.size}


def _part_of(path: str) -> CheckpointPart:
    return next(part for part in PARTS if any(fnmatchcase(path, each) for each in part.patterns))
