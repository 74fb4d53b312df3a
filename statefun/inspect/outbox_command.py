# SPDX-License-Identifier: Apache-2.0
"""``statefun outbox``: lists records that wait in the outbox, and takes some of them out."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any

from statefun.engine.effects import row_size
from statefun.engine.sinks import EgressRecord
from statefun.inspect.unpublished import Waiting, skip, to_skip, waiting
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import shows_runs
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import CheckpointError, ConfigurationError
from statefun.sdk.printable import printable

_WHOSE = ("batch", "state", "egress", "lane")
_BATCHES = (*_WHOSE, "records", "skipped", "bytes", "first: topic", "key", "bytes")
_RECORDS = (*_WHOSE, "record", "skipped", "topic", "key", "bytes")
_WIDEST = 60
"""The number of a key's characters that are shown."""


def add_command(commands: Any) -> None:
    """Add the command to a parser."""
    outbox = commands.add_parser("outbox", help="look at what is not published, or take it out")
    actions = outbox.add_subparsers(dest="action", metavar="action", required=True)
    list_ = actions.add_parser("list", help="a table of what is staged and not published")
    list_.add_argument("--records", action="store_true", help="each record, and its number")
    skip_ = actions.add_parser(
        "skip",
        help="take out records that cannot be published, while the application does not run: the "
        "next start publishes everything else",
    )
    for action in (list_, skip_):
        action.add_argument("checkpoint", help="a folder or its URI")
    skip_.add_argument("--batch", type=int, required=True, help="as the table has it")
    skip_.add_argument("--egress", required=True, help="as the table has it")
    skip_.add_argument(
        "--record",
        type=int,
        nargs="+",
        action="extend",
        help="numbers of records, as 'list --records' has them (default: all of the egress in the "
        "batch)",
    )
    skip_.add_argument(
        "--save",
        type=Path,
        help="the file to keep them in, as JSON Lines (default: a new one beside the checkpoint)",
    )
    skip_.add_argument("--yes", action="store_true", help="do it, and do not just say what it does")
    skip_.add_argument(
        "--no-lock",
        action="store_true",
        help="for a checkpoint that is not on a local file system, or that has a run "
        "with checkpoint-lock=none: nobody but you makes sure that no application runs with it",
    )


def run_command(options: argparse.Namespace) -> None:
    """Carry out the command.

    Raises:
        StatefunError: if it cannot be done.
    """
    checkpoint = Folder.at(options.checkpoint)
    try:
        if options.action == "list":
            _list(checkpoint, with_records=options.records)
        else:
            _skip(checkpoint, options)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CheckpointError(f"checkpoint {checkpoint.shown} cannot be used: {error}") from error


def _list(checkpoint: Folder, *, with_records: bool) -> None:
    rows = list((_record_rows if with_records else _batch_rows)(checkpoint))
    if rows:
        print_table([_RECORDS if with_records else _BATCHES, *rows])
    batches = len({row[0] for row in rows})
    print(
        f"{batches or 'no'} batch{'' if batches == 1 else 'es'} with records to publish in "
        f"{checkpoint.shown}; an application that runs with it publishes meanwhile"
    )


def _batch_rows(checkpoint: Folder) -> Iterator[Sequence[str]]:
    """Yield a row for each batch, egress and lane."""
    for _, group in groupby(sorted(waiting(checkpoint), key=_lane), key=_lane):
        shares = list(group)
        first: EgressRecord | None = None
        count = skipped = size = 0
        for each in shares:
            records = each.read()
            count += len(records)
            skipped += len(each.left_out.intersection(each.share.numbers))
            size += sum(map(row_size, records))
            first = first or next(iter(records), None)
        if first is not None:
            whole = (f"{count:,}", f"{skipped:,}", f"{size:,}")
            yield (*_whose(shares[0]), *whole, *_what(first))


def _record_rows(checkpoint: Folder) -> Iterator[Sequence[str]]:
    """Yield a row for each record."""
    for each in waiting(checkpoint):
        for number, record in enumerate(each.read(), each.share.first):
            skipped = "skipped" if number in each.left_out else ""
            yield (*_whose(each), str(number), skipped, *_what(record))


def _lane(each: Waiting) -> tuple[int, str, int]:
    return each.batch, each.egress, each.share.lane


def _whose(each: Waiting) -> tuple[str, ...]:
    state = "committed" if each.is_committed else "not committed"
    return str(each.batch), state, each.egress, str(each.share.lane)


def _what(record: EgressRecord) -> tuple[str, ...]:
    key = "-" if record.key is None else record.key.decode(errors="backslashreplace")
    return printable(record.topic), printable(key, _WIDEST), f"{row_size(record):,}"


def _skip(checkpoint: Folder, options: argparse.Namespace) -> None:
    batch, egress, numbers = options.batch, options.egress, options.record
    if not (checkpoint.is_local or (options.no_lock and options.save)):
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} is not on a local file system, and nothing here can "
            "keep an application off it: see to it that none runs, and give --no-lock, and --save "
            "with a local file to keep the records in"
        )
    if not (shows_runs(checkpoint) or options.no_lock):
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} has a run with checkpoint-lock=none that goes on or was "
            "killed, and nothing here can tell which: see to it that none goes on, and give --no-lock"
        )
    chosen = len(to_skip(checkpoint, batch, egress, numbers))
    what = f"{counted(chosen, 'record')} of batch {batch} for egress {egress}"
    if not options.yes:
        raise ConfigurationError(f"this would take out {what}; give --yes to do it")
    now = datetime.now(timezone.utc)
    save = options.save or Path(
        f"{checkpoint.location}.skipped-batch-{batch}-{now:%Y%m%dT%H%M%S.%fZ}.jsonl"
    )
    skip(checkpoint, batch, egress, numbers, save, has_lock=checkpoint.is_local)
    print(
        f"took out {what}, and kept it in {save}; the next start publishes the others. What was "
        "published before an error stays published"
    )
