# SPDX-License-Identifier: Apache-2.0
"""``statefun outbox``: lists records in the outbox that are not published, and removes such records."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.engine.effects import row_size
from statefun.engine.sinks import EgressRecord
from statefun.inspect.checkpoint_options import (
    add_checkpoint,
    add_no_lock,
    check_lock,
    usable,
)
from statefun.inspect.unpublished import (
    UnpublishedRecords,
    records_to_skip,
    skip,
    unpublished_records,
)
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import can_lock
from statefun.runtime.terminal.table import counted, print_table
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.printable import json_content, printable

_ORIGIN = ("batch", "state", "egress", "lane")
_BATCHES = (*_ORIGIN, "records", "skipped", "bytes", "first: topic", "key", "bytes")
_RECORDS = (*_ORIGIN, "record", "skipped", "topic", "key", "bytes")
_WIDEST = 60
"""How many characters of a record's key the table shows at most."""


def add_arguments(outbox: CommandParser) -> None:
    """Add the actions of ``statefun outbox`` to its parser."""
    actions = outbox.actions()
    list_ = actions.add(
        "list",
        "print a table of the records that are staged and not published",
        "statefun outbox list .statefun/app --records",
    )
    list_.add_argument(
        "--records", action="store_true", help="print a row for each record, with its number"
    )
    skip_ = actions.add(
        "skip",
        "remove records that cannot be published, while the application does not run: the "
        "next start publishes all other records",
        "statefun outbox skip .statefun/app --batch 17 --egress com.example/greets --record 3 --yes",
    )
    for action in (list_, skip_):
        add_checkpoint(action)
        action.add_json()
    skip_.add_argument(
        "--batch",
        type=int,
        required=True,
        help="the number of the micro-batch, as 'list' prints it",
    )
    skip_.add_argument("--egress", required=True, help="the id of the egress, as 'list' prints it")
    skip_.add_argument(
        "--record",
        type=int,
        nargs="+",
        action="extend",
        help="the numbers of records, as 'list --records' prints them (default: all records of the "
        "batch for the egress)",
    )
    skip_.add_argument(
        "--save",
        type=Path,
        help="a new file for the removed records, as JSON Lines (default: a file next to the "
        "checkpoint)",
    )
    skip_.add_argument(
        "--yes",
        action="store_true",
        help="remove the records; without it, the command only prints how many it would remove",
    )
    add_no_lock(skip_)


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun outbox``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the command fails.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        if options.action == "list":
            _list(checkpoint, with_records=options.records, in_json=options.json)
        else:
            _skip(checkpoint, options)


def _list(checkpoint: Folder, *, with_records: bool, in_json: bool) -> None:
    if in_json:
        print_json(list(_record_documents(checkpoint) if with_records else _documents(checkpoint)))
        return
    rows = list((_record_rows if with_records else _batch_rows)(checkpoint))
    if rows:
        print_table([_RECORDS if with_records else _BATCHES, *rows])
    batches = len({row[0] for row in rows})
    print(
        f"{batches or 'no'} batch{'' if batches == 1 else 'es'} with records to publish in "
        f"{checkpoint.shown}; an application that runs with it may publish them meanwhile"
    )


class _Total(NamedTuple):
    """What one lane of an egress has to publish of a micro-batch: the sum of what its tasks have sent."""

    part: UnpublishedRecords
    """One of the parts, for what they have in common."""
    records: int
    skipped: int
    size: int
    first: EgressRecord | None


def _totals(checkpoint: Folder) -> Iterator[_Total]:
    """Yield the unpublished records of each micro-batch, egress and lane."""
    for _, group in groupby(sorted(unpublished_records(checkpoint), key=_lane), key=_lane):
        parts = list(group)
        first: EgressRecord | None = None
        count = skipped = size = 0
        for part in parts:
            records = part.read()
            count += len(records)
            skipped += len(part.left_out.intersection(part.share.numbers))
            size += sum(map(row_size, records))
            first = first or next(iter(records), None)
        yield _Total(parts[0], count, skipped, size, first)


def _batch_rows(checkpoint: Folder) -> Iterator[Sequence[str]]:
    """Yield a row of the table for each micro-batch, egress and lane with unpublished records."""
    for total in _totals(checkpoint):
        if total.first is not None:
            counts = (f"{total.records:,}", f"{total.skipped:,}", f"{total.size:,}")
            yield (*_origin(total.part), *counts, *_described(total.first))


def _record_rows(checkpoint: Folder) -> Iterator[Sequence[str]]:
    """Yield a row of the table for each unpublished record."""
    for part in unpublished_records(checkpoint):
        for number, record in enumerate(part.read(), part.share.first):
            skipped = "skipped" if number in part.left_out else ""
            yield (*_origin(part), str(number), skipped, *_described(record))


def _record_documents(checkpoint: Folder) -> Iterator[dict[str, Any]]:
    """Yield a document for each unpublished record."""
    for part in unpublished_records(checkpoint):
        for number, record in enumerate(part.read(), part.share.first):
            yield {
                **_origin_document(part),
                "record": number,
                "skipped": number in part.left_out,
                "topic": record.topic,
                "key": json_content(record.key),
                "bytes": row_size(record),
            }


def _documents(checkpoint: Folder) -> Iterator[dict[str, Any]]:
    """Yield a document for each micro-batch, egress and lane with unpublished records."""
    for total in _totals(checkpoint):
        yield {
            **_origin_document(total.part),
            "records": total.records,
            "skipped": total.skipped,
            "bytes": total.size,
        }


def _origin_document(part: UnpublishedRecords) -> dict[str, Any]:
    return {
        "batch": part.batch,
        "committed": part.is_committed,
        "egress": part.egress,
        "lane": part.share.lane,
    }


def _lane(part: UnpublishedRecords) -> tuple[int, str, int]:
    return part.batch, part.egress, part.share.lane


def _origin(part: UnpublishedRecords) -> tuple[str, ...]:
    """Return the cells with the micro-batch of records, whether it is committed, their egress and their lane."""
    state = "committed" if part.is_committed else "not committed"
    return str(part.batch), state, part.egress, str(part.share.lane)


def _described(record: EgressRecord) -> tuple[str, ...]:
    """Return the cells with the topic, the key and the size of a record."""
    key = "-" if record.key is None else record.key.decode(errors="backslashreplace")
    return printable(record.topic), printable(key, _WIDEST), f"{row_size(record):,}"


def _skip(checkpoint: Folder, options: argparse.Namespace) -> None:
    batch, egress, numbers = options.batch, options.egress, options.record
    # The default file for the removed records is next to the checkpoint.
    no_lock = options.no_lock and (checkpoint.is_local or options.save is not None)
    further = ", and --save with a local file for the removed records"
    check_lock(checkpoint, no_lock=no_lock, further=further)
    count = len(records_to_skip(checkpoint, batch, egress, numbers))
    chosen = f"{counted(count, 'record')} of batch {batch} for egress {egress}"
    if not options.yes:
        raise ConfigurationError(f"the command would remove {chosen}; add --yes to remove them")
    now = datetime.now(timezone.utc)
    save = options.save or Path(
        f"{checkpoint.location}.skipped-batch-{batch}-{now:%Y%m%dT%H%M%S.%fZ}.jsonl"
    )
    skip(checkpoint, batch, egress, numbers, save, has_lock=can_lock(checkpoint))
    if options.json:
        print_json({"batch": batch, "egress": egress, "removed": count, "saved": str(save)})
        return
    print(
        f"removed {chosen}, and saved them in {save}; the next start publishes all other records. "
        "Records that were published before an error stay published"
    )
