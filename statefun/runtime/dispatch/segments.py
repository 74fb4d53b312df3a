# SPDX-License-Identifier: Apache-2.0
"""Handing effects from a task to the outbox: small ones by value, large ones as files."""

from __future__ import annotations

import uuid

import attrs
from pyspark import TaskContext

from statefun.protocol.runtime_pb2 import EffectStream, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.rows.effects import EffectRows, Effects
from statefun.runtime.spark_internals.task import batch_number

_INLINE_BYTES = 256 * 1024
"""So much of a task's effects travels through the driver: fewer files to create, list and delete.

Of all its streams and addresses together: Spark ends a job whose results are too large."""
_FULL_BYTES = 32 * 1024 * 1024
"""From here on effects are written out, so that a task's memory stays bounded."""


class InlineBudget:
    """How much the present task may still hand to the driver; a process runs one at a time."""

    def __init__(self) -> None:
        self._task = -1
        self._left = 0

    def takes(self, task: int, size: int) -> bool:
        """Tell whether so many bytes of a task, by its attempt's id, fit; from now on they do."""
        if task != self._task:
            self._task, self._left = task, _INLINE_BYTES
        if size > self._left:
            return False
        self._left -= size
        return True


_inline = InlineBudget()


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
        if _inline.takes(task.taskAttemptId(), len(content)):
            return effect_stream(content, records)
        # A name of its own for every attempt: what a zombie writes is never in a manifest.
        name = f"{task.partitionId()}-{task.taskAttemptId()}-{uuid.uuid4().hex}.arrow"
        Outbox(self.checkpoint).batch_folder(batch_number()).write(name, content)
        return effect_stream(content, records, name)
