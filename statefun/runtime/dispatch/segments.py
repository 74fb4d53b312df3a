# SPDX-License-Identifier: Apache-2.0
"""Handing effects from a task to the outbox: small ones by value, large ones as files."""

from __future__ import annotations

import uuid

import attrs
from pyspark import TaskContext

from statefun.protocol.runtime_pb2 import EffectStream, Segment
from statefun.runtime.effects import EffectRows, Effects
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Outbox, effect_stream

_INLINE_BYTES = 256 * 1024
"""Up to here a stream travels through the driver: one file less to create, list and delete."""
_FULL_BYTES = 32 * 1024 * 1024
"""From here on effects are written out, so that a task's memory stays bounded."""


def batch_number() -> int:
    """Return the number of the micro-batch that the present task is part of."""
    task = TaskContext.get()
    return int((task and task.getLocalProperty("streaming.sql.batchId")) or 0)


@attrs.frozen
class SegmentWriter:
    """Writes the segments of whatever task it is called in."""

    checkpoint: Folder

    def is_full(self, effects: Effects) -> bool:
        """Tell whether ``effects`` should be written before more are collected."""
        return effects.size >= _FULL_BYTES

    def write(self, effects: Effects) -> Segment:
        """Turn ``effects`` into a segment, and empty them."""
        task = TaskContext.get()
        if task is None:
            raise AssertionError("segments are written inside Spark tasks only")
        buckets, effects.buckets = effects.buckets, set()
        return Segment(
            partition=task.partitionId(),
            egress={
                egress: self._stream(rows, task) for egress, rows in effects.egress.items() if rows
            },
            messages=self._stream(effects.messages, task) if effects.messages else None,
            buckets=sorted(buckets),
        )

    def _stream(self, rows: EffectRows, task: TaskContext) -> EffectStream:
        records = len(rows)
        content = rows.take()
        if len(content) <= _INLINE_BYTES:
            return effect_stream(content, records)
        # A name of its own for every attempt: what a zombie writes is never in a manifest.
        name = f"{task.partitionId()}-{task.taskAttemptId()}-{uuid.uuid4().hex}.arrow"
        Outbox(self.checkpoint).batch_folder(batch_number()).write(name, content)
        return effect_stream(content, records, name)
