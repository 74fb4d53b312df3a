# SPDX-License-Identifier: Apache-2.0
"""The feedback source: messages between functions, out of the outbox and into the next batch.

The offset of this streaming source is the number of a batch and of a timer tick: all messages that
functions sent in batches up to this one were delivered, and all timers due by this tick were
released. Only committed batches count, so that no message is delivered that a repeated batch
would not send. The offset does not change while nothing is sent or due: an idle stream
runs no batches.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from statefun.engine.buckets import RELEASED, TICK
from statefun.engine.clock import Clock
from statefun.engine.effects import EffectRows
from statefun.engine.wheel import PendingBuckets, bucket_key, due_tick, tick_of, time_of
from statefun.protocol.runtime_pb2 import DelayedMessage, EffectStream
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, has_messages
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE, PlaygroundStore
from statefun.runtime.checkpoint.timer_log import TimerLog, timer_buckets
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream, read_batches
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.runtime.spark_internals.driver_source import Offset, arrow_schema, planned_tasks
from statefun.sdk.errors import CheckpointError

_NAME = "statefun-feedback"
_BATCH = "batch"
_TICK = "tick"
_POSTED = "posted"
_NONE = -1
_ARROW_SCHEMA = arrow_schema(ROW_SCHEMA)
_MOST_HELD = 16
"""How many micro-batches in a row leave out messages that somebody has typed."""
_TASK_RECORDS = 50_000
"""The number of messages that one task reads before another task is worth its start."""


def read_feedback(
    session: SparkSession,
    checkpoint: Folder,
    clock: Clock,
    failed: Callable[[Exception], None],
    store: PlaygroundStore | None = None,
) -> DataFrame:
    """Return the messages that the query in ``checkpoint`` sends to its own functions.

    Args:
        session: the session.
        checkpoint: the query's checkpoint.
        clock: tells which timers are due.
        failed: gets the exception if it cannot be decided what a micro-batch delivers.
        store: the messages that the playground has accepted, if there is one.
    """
    outbox = Outbox(checkpoint)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_feedback_task(outbox, task)

    tasks = planned_tasks(session, _NAME, FeedbackReader(checkpoint, clock, store), failed)
    return tasks.mapInArrow(read, ROW_SCHEMA)


def feedback_offset(log: CommitLog, batch: int) -> Mapping[str, Any] | None:
    """Return the end offset of a micro-batch in this source; None if it had no data yet.

    Raises:
        CheckpointError: if the log has no such batch, or its file is damaged.
    """
    offsets = log.end_offsets(batch)
    offset = offsets[-1] if offsets else {}
    if offset is not None and not offset.keys() >= {_BATCH, _TICK}:
        raise CheckpointError(
            f"{log.offsets_file(batch)} is damaged: it does not end with the offset of messages "
            "between functions; restore the checkpoint from a copy"
        )
    return offset


def delivered(offset: Mapping[str, Any] | None) -> int:
    """Return the last batch in an offset of the source; its messages are delivered. -1 if none."""
    return _NONE if offset is None else int(offset[_BATCH])


def ticked(offset: Mapping[str, Any] | None) -> int:
    """Return the last tick in an offset of the source; its timers are released. -1 if none."""
    return _NONE if offset is None else int(offset[_TICK])


def accepted(offset: Mapping[str, Any] | None) -> int:
    """Return the last message of the playground in an offset of the source; 0 if none."""
    return 0 if offset is None else int(offset.get(_POSTED, 0))


@attrs.frozen
class _Stream:
    """One stream of messages in the outbox."""

    batch: int
    segment: int
    first: int
    """The number of messages before it in the same micro-batch."""


@attrs.frozen
class _Ticks:
    """Ticks for timer buckets."""

    buckets: Sequence[int]
    tick: int
    first: int
    """The number of messages before them in the same micro-batch: all."""


@attrs.frozen
class _Posted:
    """Messages that the playground has accepted."""

    rows: str
    """Rows of ``MESSAGE_SCHEMA``, as a stream of Arrow's in Base64: tasks have no database."""
    first: int
    """The number of messages before them in the same micro-batch."""


class FeedbackReader:
    """Decides which messages of committed batches, and which ticks for timers, are delivered."""

    def __init__(
        self, checkpoint: Folder, clock: Clock, store: PlaygroundStore | None = None
    ) -> None:
        self._store = store
        self._outbox = Outbox(checkpoint)
        self._commit_log = CommitLog(checkpoint)
        self._timer_log = TimerLog(checkpoint)
        self._clock = clock
        self._held = 0
        """How many micro-batches in a row have left them out."""
        self._seen: int | None = None
        self._newest = _NONE
        self._timers = PendingBuckets()
        self._arriving: dict[int, set[int]] = {}
        """Timer buckets by the batch that has sent to them; delivered batches are dropped."""

    def initial_offset(self) -> Offset:
        """Begin before the first batch and tick."""
        return {_BATCH: _NONE, _TICK: _NONE}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the newest committed batch that has sent messages, or the batch of ``start``.

        New batches are found by asking for the next batch by name, without listing folders. The
        offset changes only if messages wait or a timer is due. Its tick is then the present
        one, even if the clock was set back after the tick of ``start``: a message that is delivered
        now is due by the present time or waits in a bucket, and a bucket's tick is later than the
        tick of the offset that delivered the message.
        """
        self._look()
        self._timers.drop(ticked(start))
        for batch, buckets in list(self._arriving.items()):
            if batch <= delivered(start):
                del self._arriving[batch]
            else:
                self._timers.add(buckets)
        newest = max(delivered(start), self._newest)
        tick, first = tick_of(self._clock.now()), self._timers.next_tick()
        posted = self._readable(accepted(start), is_busy=newest > delivered(start))
        is_idle = newest == delivered(start) and posted == accepted(start)
        if is_idle and (first is None or first > tick):
            return start
        return {_BATCH: newest, _TICK: tick} | ({_POSTED: posted} if posted else {})

    def tasks(self, start: Offset, end: Offset) -> list[bytes]:
        """Divide the messages and ticks behind ``start``, up to ``end``, among tasks."""
        tasks: list[list[_Stream | _Posted | _Ticks]] = []
        records, full_at = 0, 0
        first, last = delivered(start) + 1, delivered(end)
        if first <= last and not self._messages(last):
            raise CheckpointError(
                f"the messages of batch {last} are no longer in "
                f"{self._outbox.batch_folder(last).shown}, and have not been delivered yet; "
                "restore the checkpoint from a copy"
            )
        for batch in [batch for batch in self._outbox.batches() if first <= batch <= last]:
            for index, stream in self._messages(batch).items():
                if not tasks or records >= full_at:
                    tasks.append([])
                    full_at = records + _TASK_RECORDS
                tasks[-1].append(_Stream(batch, index, records))
                records += stream.records
        posted = self._posted(accepted(start), accepted(end))
        if posted:
            tasks = tasks or [[]]
            tasks[-1].append(_Posted(posted, records))
            records += accepted(end) - accepted(start)
        buckets = self._due(start, end)
        if buckets:
            tasks = tasks or [[]]
            tasks[-1].append(_Ticks(buckets, ticked(end), records))
        return [json.dumps([attrs.asdict(part) for part in parts]).encode() for parts in tasks]

    def bound(self) -> None:
        """Do not stop at the present end: what a micro-batch causes belongs to the run."""

    def stop(self) -> None:
        """Have nothing to release."""

    def _readable(self, after: int, *, is_busy: bool) -> int:
        """Return up to which accepted message to read; forget those that were read before.

        Where so few wait that somebody types them, the next one for an address comes when the messages
        that the last one has caused are delivered: whoever adds to a cart, and pays, means this order.
        Functions that send without end hold nothing up.
        """
        if self._store is None:
            return after
        self._store.forget(after)
        last = self._store.readable(after)
        typed = None if last == after else self._store.typed(after)
        if typed is not None and is_busy and self._held < _MOST_HELD:
            self._held += 1
            return after
        self._held = 0
        return last if typed is None else min(last, typed)

    def _posted(self, after: int, last: int) -> str:
        """Return accepted messages, encoded for a task."""
        if after == last:
            return ""
        found = self._store.posted(after, last) if self._store is not None else []
        if len(found) != last - after:
            raise CheckpointError(
                f"messages {after + 1} to {last} of the playground are no longer in {PLAYGROUND_FILE} of the "
                "checkpoint, and have not been delivered yet; restore the checkpoint from a copy"
            )
        rows = EffectRows()
        for _, target, typename, value in found:
            rows.append((target, None, typename, value, None))
        return b64encode(arrow_stream(rows.take(), MESSAGE_SCHEMA)).decode()

    def _look(self) -> None:
        """Look for newly committed batches."""
        if self._seen is None:
            newest = self._commit_log.newest()
            for batch in self._outbox.batches():
                if batch <= newest:
                    self._note(batch)
            # Not before: a batch that leaves the outbox has been logged.
            self._timers = self._timer_log.load()
            for buckets in self._arriving.values():
                self._timers.add(buckets)
            self._seen = newest
        while self._commit_log.has(self._seen + 1):
            self._seen += 1
            self._note(self._seen)

    def _note(self, batch: int) -> None:
        manifest = self._outbox.manifest(batch)
        if manifest is None:
            return
        if has_messages(manifest):
            self._newest = batch
        buckets = timer_buckets(manifest)
        if buckets:
            self._arriving[batch] = buckets

    def _due(self, start: Offset, end: Offset) -> list[int]:
        """Return the buckets that are due by ``end`` and have not had a tick by ``start``."""
        self._look()
        arriving = {
            bucket
            for batch, buckets in self._arriving.items()
            if delivered(start) < batch <= delivered(end)
            for bucket in buckets
            if due_tick(bucket) <= ticked(end)
        }
        waiting = {
            bucket for bucket in self._timers.due(ticked(end)) if due_tick(bucket) > ticked(start)
        }
        return sorted(arriving | waiting)

    def _messages(self, batch: int) -> dict[int, EffectStream]:
        return _messages(self._outbox, batch)


def read_feedback_task(outbox: Outbox, task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the messages and ticks of one task, as rows of ``envelope.ROW_SCHEMA``, numbered in order."""
    for part in json.loads(task):
        offset = part["first"]
        if "buckets" in part:
            yield _rows(_ticks(part["buckets"], part["tick"]), offset)
            continue
        if "rows" in part:
            for rows in read_batches(BytesIO(b64decode(part["rows"]))):
                yield _rows(rows, offset)
                offset += len(rows)
            continue
        batch = part["batch"]
        with outbox.open(batch, _messages(outbox, batch)[part["segment"]]) as file:
            for rows in read_batches(file):
                yield _rows(rows, offset)
                offset += len(rows)


def _messages(outbox: Outbox, batch: int) -> dict[int, EffectStream]:
    """Return the streams of messages of a batch, by their segment's number."""
    manifest = outbox.manifest(batch)
    if manifest is None:
        return {}
    return {
        index: segment.messages
        for index, segment in enumerate(manifest.segments)
        if segment.messages.records
    }


def _ticks(buckets: Sequence[int], tick: int) -> pa.RecordBatch:
    rows = [(bucket_key(bucket), None, TICK, b"%d" % time_of(tick), None) for bucket in buckets]
    columns = map(pa.array, zip(*rows, strict=True), MESSAGE_SCHEMA.types)
    return pa.record_batch(list(columns), schema=MESSAGE_SCHEMA)


def _rows(messages: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow, and no need of the driver

    count = len(messages)
    columns = dict(zip(MESSAGE_SCHEMA.names, messages.columns, strict=True))
    columns["offset"] = pa.array(range(offset, offset + count), pa.int64())
    if pc.any(pc.equal(messages["typename"], RELEASED)).as_py():
        columns |= _unwrapped(messages, offset)
    columns["flags"] = pa.repeat(pa.scalar(0, pa.int32()), count)
    for field in _ARROW_SCHEMA:  # columns of ingress records only
        columns.setdefault(field.name, pa.nulls(count, field.type))
    return pa.record_batch({name: columns[name] for name in ROW_SCHEMA.names})


def _unwrapped(messages: pa.RecordBatch, offset: int) -> dict[str, pa.Array]:
    """Return the columns of messages, with timers' original messages and their order."""
    names = ("typename", "value", "trace")
    rows: list[tuple[Any, ...]] = []
    columns = (messages[name].to_pylist() for name in names)
    for place, (typename, value, trace) in enumerate(zip(*columns, strict=True), offset):
        if typename == RELEASED:
            entry = DelayedMessage.FromString(value)
            order = (entry.due, entry.sequence)
            rows.append((entry.typename, entry.value, entry.trace or None, *order))
        else:
            rows.append((typename, value, trace, None, place))
    types = [_ARROW_SCHEMA.field(name).type for name in (*names, "timestamp", "offset")]
    arrays = map(pa.array, zip(*rows, strict=True), types)
    return dict(zip((*names, "timestamp", "offset"), arrays, strict=True))
