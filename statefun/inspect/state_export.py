# SPDX-License-Identifier: Apache-2.0
"""Exports the state of all addresses to a Parquet file, and makes a new checkpoint from such a file.

A row is an address: its typename and id, and the bytes of its key and its state. The addresses of statefun itself,
which hold timers and waiting messages, are rows as well. The file's metadata say where the application goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from statefun.engine.address_keys import SEPARATOR
from statefun.engine.wheel import BUCKET, TIMERS_NAMESPACE, PendingBuckets, bucket_of_id
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.commit_log import CommitLog, within_stops
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_changes import all_ends
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.known_functions import (
    KnownFunctions,
    known_functions,
    write_functions,
)
from statefun.runtime.checkpoint.lock import checkpoint_lock, shows_runs
from statefun.runtime.checkpoint.outbox import Outbox, has_messages, waits_for_delivery
from statefun.runtime.checkpoint.repair_log import REPAIRS_INBOX, RepairLog
from statefun.runtime.checkpoint.sent_messages import SENT_INBOX, undelivered_sent
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.ingress.feedback_offset import FeedbackOffset, feedback_offset
from statefun.runtime.ingress.holding import waiting_after, write_waiting
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX
from statefun.runtime.ingress.stopping import stops_of_last_run
from statefun.runtime.loading.new_checkpoint import (
    Beginning,
    begin_checkpoint,
    complete_checkpoint,
    empty_checkpoint,
)
from statefun.runtime.spark.session import open_session, use_checkpoint
from statefun.runtime.stored.committed_state import CommittedState, with_state
from statefun.runtime.stored.posted import undelivered_posted
from statefun.sdk.errors import CheckpointError, ConfigurationError

_FACTS = b"statefun"
"""The key of the facts in the file's metadata."""
_FORMAT = 1
_SCHEMA = pa.schema(
    [("type", pa.string()), ("id", pa.string()), ("key", pa.binary()), ("state", pa.binary())]
)
_GROUP = 50_000
"""The number of rows in a row group of the file."""
_READ_AT_ONCE = 1000
"""The largest number of rows that a task reads at once: a row may be large."""
_BUCKETS = f"{TIMERS_NAMESPACE}/{BUCKET}"


@attrs.frozen
class Exported:
    """Facts about a file with exported states."""

    batch: int
    """The number of the micro-batch after which the addresses had these states."""
    addresses: int
    """The number of addresses in the file, including statefun's own."""
    reason: str
    """Why no checkpoint can be made from the file; empty if one can be made."""


def export_state(checkpoint: Folder, file: Path) -> Exported:
    """Write the states of all addresses into a Parquet file, in one step.

    Args:
        checkpoint: the checkpoint; its application may run.
        file: a new file.

    Raises:
        ConfigurationError: if the file exists, or there is no checkpoint.
        CheckpointError: if the checkpoint is empty or damaged.
    """
    if file.exists():
        raise ConfigurationError(f"{file} exists already: give the name of a new file")
    if not shows_runs(checkpoint):
        return _exported(checkpoint, file, "nothing showed whether an application was running")
    if CommitLog(checkpoint).query_id():
        with suppress(CheckpointError), checkpoint_lock(checkpoint, timedelta(0)):
            return _exported(checkpoint, file, _reason(checkpoint))
    return _exported(checkpoint, file, "an application was running with the checkpoint")


def import_state(file: Path, checkpoint: Folder, state_partitions: int | None) -> Exported:
    """Make a new checkpoint with the states of a file, byte for byte.

    Args:
        file: a file that :func:`export_state` has written.
        checkpoint: an empty folder, or one that does not exist.
        state_partitions: into how many partitions the state is divided; None: as many as there are cores.

    Raises:
        ConfigurationError: if no checkpoint can be made from the file, or the folder has files.
        CheckpointError: if the checkpoint cannot be written.
    """
    facts = _facts(file)
    exported = Exported(facts["batch"], pq.ParquetFile(file).metadata.num_rows, facts["reason"])
    if exported.reason:
        raise ConfigurationError(
            f"no checkpoint can be made from {file}: when it was written, {exported.reason}; let the application run "
            "with available-now until it ends, and export the state again"
        )
    with empty_checkpoint(checkpoint):
        session = open_session(debug=False, state_partitions=state_partitions, kafka=False)
        use_checkpoint(session, checkpoint)
        begin_checkpoint(session, checkpoint)
        buckets = PendingBuckets()
        buckets.add({*_buckets(file)})
        if buckets:
            TimerLog(checkpoint).add(0, buckets.all(), buckets)
        functions = facts["functions"]
        if functions is not None:
            write_functions(checkpoint, KnownFunctions.of_json(functions))
        if "waiting" in facts:  # earlier versions have not exported it
            write_waiting(checkpoint, facts["waiting"])
        rows = _rows(session, file)
        complete_checkpoint(session, checkpoint, rows, Beginning(**facts["beginning"]))
    return exported


def _rows(session: SparkSession, file: Path) -> DataFrame:
    """Return the keys and states in a file; each group of rows is read by a task.

    Spark itself would take some characters of the name for a pattern, and a name that begins with ``_`` for hidden.
    """
    groups = pq.ParquetFile(file).num_row_groups
    numbers = session.range(0, groups, numPartitions=max(groups, 1))
    return numbers.mapInArrow(
        partial(_read_groups, str(file.absolute())), "key binary, state binary"
    )


def _read_groups(file: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the groups of rows whose numbers are in Arrow batches, in Spark's workers."""
    for batch in batches:
        with pq.ParquetFile(file) as opened:
            groups = batch.column(0).to_pylist()
            yield from opened.iter_batches(_READ_AT_ONCE, groups, ["key", "state"])


def _exported(checkpoint: Folder, file: Path, reason: str) -> Exported:
    def write(state: CommittedState) -> Exported:
        addresses = 0
        facts = _facts_of(checkpoint, state.batch, reason)
        schema = _SCHEMA.with_metadata({_FACTS: json.dumps(facts).encode()})
        with pq.ParquetWriter(unfinished, schema) as writer:
            for rows in _groups(state):
                writer.write_table(rows.cast(schema))
                addresses += len(rows)
        return Exported(state.batch, addresses, reason)

    unfinished = file.with_name(f".{file.name}.unfinished")
    try:
        exported = with_state(checkpoint, None, write)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return exported


def _groups(state: CommittedState) -> Iterator[pa.Table]:
    keys: list[bytes] = []
    states: list[bytes] = []
    for key, content in state:
        keys.append(key)
        states.append(content)
        if len(keys) == _GROUP:
            yield _table(keys, states)
            keys, states = [], []
    if keys:
        yield _table(keys, states)


def _table(keys: Sequence[bytes], states: Sequence[bytes]) -> pa.Table:
    parts = [key.rpartition(SEPARATOR) for key in keys]
    types = [typename.decode() for _, _, typename in parts]
    ids = [id_.decode(errors="backslashreplace") for id_, _, _ in parts]
    return pa.table([types, ids, keys, states], schema=_SCHEMA)


def _facts_of(checkpoint: Folder, batch: int, reason: str) -> dict[str, Any]:
    order, stops = IngressOrder.read(checkpoint), stops_of_last_run(checkpoint)
    offsets, removed = all_ends(checkpoint, batch)
    ends = {
        name: within_stops(end, stops[name]) if end is not None and name in stops else end
        for name, end in offsets.items()
    }
    known = known_functions(checkpoint)
    functions = None if known is None else known.to_json()
    feedback = feedback_offset(CommitLog(checkpoint), batch)
    beginning = Beginning(
        {name: end for name, end in ends.items() if name not in removed},
        dict(order.topics),
        {name: ends[name] for name in removed},
        tick=feedback.tick,
        event=None if feedback.event is None else feedback.event.encode(),
        opened=feedback.opened,
    )
    return {
        "format": _FORMAT,
        "batch": batch,
        "reason": reason,
        "beginning": attrs.asdict(beginning),
        "functions": functions,
        "waiting": waiting_after(checkpoint, batch),
    }


def _reason(checkpoint: Folder) -> str:
    """Return why a stopped application could not go on from its states alone; empty if it could."""
    try:
        return next(_on_their_way(checkpoint), "")
    except CheckpointError as error:
        return f"a file of the checkpoint could not be read ({error.message})"


def _on_their_way(checkpoint: Folder) -> Iterator[str]:
    """Yield why a stopped application could not go on from its states alone."""
    log, outbox = CommitLog(checkpoint), Outbox(checkpoint)
    newest = log.newest()
    feedback = feedback_offset(log, newest)
    for batch in outbox.batches():
        manifest = outbox.manifest(batch) if batch <= newest else None
        if manifest is None:
            continue
        if has_messages(manifest) and batch > feedback.batch:
            yield f"messages of micro-batch {batch} were not delivered yet"
        if waits_for_delivery(manifest) and batch > feedback.batch:
            yield f"event times of micro-batch {batch} had not counted yet"
        if not outbox.is_published(batch) and any(each.egress for each in manifest.segments):
            yield f"records of micro-batch {batch} were not published yet"
    if CallLog(checkpoint).recover():
        yield "calls that have left their micro-batches were unfinished"
    yield from _accepted(checkpoint, feedback)
    order = IngressOrder.read(checkpoint)
    for name in (*order.names, *order.removed):
        if " " in name:
            yield f"ingress {name} had read with a connector, whose files are not part of the state"


def _accepted(checkpoint: Folder, feedback: FeedbackOffset) -> Iterator[str]:
    """Yield what the inboxes of a stopped application have accepted and not delivered."""
    repaired = feedback.last_of(REPAIRS_INBOX)
    if RepairLog(checkpoint).readable(repaired) > repaired:
        yield "a repair was accepted and not applied yet"
    for _ in undelivered_sent(checkpoint, feedback.last_of(SENT_INBOX)):
        yield "messages of 'statefun send' were not delivered yet"
    for _ in undelivered_posted(checkpoint, feedback.last_of(PLAYGROUND_INBOX)):
        yield "messages of the playground were not delivered yet"


def _facts(file: Path) -> dict[str, Any]:
    """Return the facts in the metadata of a file.

    Raises:
        ConfigurationError: if there is no such file, or :func:`export_state` has not written it in this format.
    """
    try:
        facts = json.loads((pq.read_schema(file).metadata or {})[_FACTS])
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no file {file}: give the name of one that 'statefun state export' has written"
        ) from None
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"{file} was not written by 'statefun state export', or is damaged ({error})"
        ) from error
    if facts.get("format") != _FORMAT:
        raise ConfigurationError(
            f"{file} has format {facts.get('format')}, and this version of statefun reads only format {_FORMAT}: "
            "export the state again with this version"
        )
    return dict(facts)


def _buckets(file: Path) -> Iterator[int]:
    """Yield the numbers of the timer buckets in a file."""
    for batch in pq.ParquetFile(file).iter_batches(columns=["type", "id"]):
        for id_ in batch.column("id").filter(pc.equal(batch.column("type"), _BUCKETS)).to_pylist():
            yield bucket_of_id(id_)
