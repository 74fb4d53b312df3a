# SPDX-License-Identifier: Apache-2.0
"""The tasks of the feedback source: the driver plans them, and Spark's workers read their rows.

A task is a list of parts, and a part has consecutive rows. All rows of a micro-batch are numbered: first come
the messages between functions, in the order of micro-batches and segments, then the messages of inboxes, then
ticks. Each part has the number of its first row, so the order of the rows does not depend on how the parts are
divided among tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from statefun.engine.buckets import RELEASED, TICK
from statefun.engine.effects import EffectRows
from statefun.engine.wheel import bucket_key, time_of
from statefun.protocol.runtime_pb2 import DelayedMessage, EffectStream, FeedbackTask
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream, read_batches
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.runtime.spark_internals.arrow_functions import arrow_schema

_ARROW_SCHEMA = arrow_schema(ROW_SCHEMA)
_TASK_RECORDS = 50_000
"""The number of messages in a task after which the next segment is read by another task."""


_CONTAINED_BYTES = 16 * 1024
"""The largest size of a segment's messages, in bytes, that a task contains, so that it need not read the manifest."""


class FeedbackTasks:
    """Divides the rows of one micro-batch among tasks; parts must be added in the order of their rows."""

    def __init__(self) -> None:
        self._tasks: list[FeedbackTask] = []
        self._rows = 0
        self._full_at = 0
        """The number of rows at which the newest task is full: the next segment then begins a new task."""

    def add_sent(self, batch: int, segment: int, stream: EffectStream) -> None:
        """Add the messages of a segment; the task contains them if they are few, or else reads them from the outbox."""
        if not self._tasks or self._rows >= self._full_at:
            self._tasks.append(FeedbackTask())
            self._full_at = self._rows + _TASK_RECORDS
        sent = FeedbackTask.Sent(batch=batch, segment=segment)
        if len(stream.content) <= _CONTAINED_BYTES:
            sent.stream.CopyFrom(stream)
        self._add(FeedbackTask.Part(sent=sent), stream.records)

    def add_accepted(self, messages: Sequence[AcceptedMessage]) -> None:
        """Add messages that an inbox has accepted; the task contains them, since workers cannot read inboxes."""
        if messages:
            rows = EffectRows()
            for _, target, typename, value in messages:
                rows.append((target, None, typename, value, None, None))
            content = arrow_stream(rows.take(), MESSAGE_SCHEMA)
            self._add(FeedbackTask.Part(accepted=content), len(messages))

    def add_ticks(self, buckets: Sequence[int], tick: int) -> None:
        """Add a tick with the number ``tick`` for each of the given buckets."""
        if buckets:
            ticks = FeedbackTask.Ticks(tick=tick, buckets=buckets)
            self._add(FeedbackTask.Part(ticks=ticks), len(buckets))

    def encoded(self) -> list[bytes]:
        """Return the tasks as bytes, which :func:`read_feedback_task` decodes."""
        return [task.SerializeToString() for task in self._tasks]

    def _add(self, part: FeedbackTask.Part, rows: int) -> None:
        if not self._tasks:
            self._tasks.append(FeedbackTask())
        part.first = self._rows
        self._tasks[-1].parts.append(part)
        self._rows += rows


def read_feedback_task(outbox: Outbox, task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the messages and ticks of one task as rows of ``envelope.ROW_SCHEMA`` with their numbers."""
    for part in FeedbackTask.FromString(task).parts:
        number = part.first
        for messages in _messages_of(part, outbox):
            yield _rows(messages, number)
            number += len(messages)


def message_streams(outbox: Outbox, batch: int) -> dict[int, EffectStream]:
    """Return the streams of messages that a micro-batch has sent, by the numbers of their segments."""
    manifest = outbox.manifest(batch)
    if manifest is None:
        return {}
    return {
        index: segment.messages
        for index, segment in enumerate(manifest.segments)
        if segment.messages.records
    }


def _messages_of(part: FeedbackTask.Part, outbox: Outbox) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's part, with the columns of ``MESSAGE_SCHEMA``."""
    match part.WhichOneof("rows"):
        case "sent":
            batch, segment = part.sent.batch, part.sent.segment
            is_contained = part.sent.HasField("stream")
            stream = part.sent.stream if is_contained else message_streams(outbox, batch)[segment]
            with outbox.open(batch, stream) as file:
                yield from read_batches(file)
        case "accepted":
            yield from read_batches(BytesIO(part.accepted))
        case "ticks":
            yield _ticks(part.ticks.buckets, part.ticks.tick)


def _ticks(buckets: Sequence[int], tick: int) -> pa.RecordBatch:
    value = b"%d" % time_of(tick)
    rows = [(bucket_key(bucket), None, TICK, value, None, None) for bucket in buckets]
    columns = map(pa.array, zip(*rows, strict=True), MESSAGE_SCHEMA.types)
    return pa.record_batch(list(columns), schema=MESSAGE_SCHEMA)


def _rows(messages: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Convert messages to rows of ``envelope.ROW_SCHEMA``, numbered from ``first`` on."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow, and the driver does not need it

    count = len(messages)
    columns = dict(zip(MESSAGE_SCHEMA.names, messages.columns, strict=True))
    columns["offset"] = pa.array(range(first, first + count), pa.int64())
    if pc.any(pc.equal(messages["typename"], RELEASED)).as_py():
        columns |= _unwrapped(messages, first)
    columns["flags"] = pa.repeat(pa.scalar(0, pa.int32()), count)
    for field in _ARROW_SCHEMA:  # columns of ingress records only
        columns.setdefault(field.name, pa.nulls(count, field.type))
    return pa.record_batch({name: columns[name] for name in ROW_SCHEMA.names})


def _unwrapped(messages: pa.RecordBatch, first: int) -> dict[str, pa.Array]:
    """Unwrap the delayed messages that buckets have released, and return the columns that this changes.

    A bucket releases a delayed message in a wrapper, which has the message and its due time. The due time
    becomes the timestamp, and the delayed message's own number becomes the offset, so that delayed messages
    keep their order. Other messages are numbered from ``first`` on.
    """
    names = ("typename", "value", "trace")
    rows: list[tuple[Any, ...]] = []
    columns = (messages[name].to_pylist() for name in names)
    for number, (typename, value, trace) in enumerate(zip(*columns, strict=True), first):
        if typename == RELEASED:
            entry = DelayedMessage.FromString(value)
            order = (entry.due, entry.sequence)
            rows.append((entry.typename, entry.value, entry.trace or None, *order))
        else:
            rows.append((typename, value, trace, None, number))
    types = [_ARROW_SCHEMA.field(name).type for name in (*names, "timestamp", "offset")]
    arrays = map(pa.array, zip(*rows, strict=True), types)
    return dict(zip((*names, "timestamp", "offset"), arrays, strict=True))
