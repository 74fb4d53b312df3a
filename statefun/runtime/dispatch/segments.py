# SPDX-License-Identifier: Apache-2.0
"""Passes effects from a task to the outbox: small ones through the driver, large ones as files."""

from __future__ import annotations

import uuid

import attrs
import pyarrow as pa
from pyspark import TaskContext

from statefun.engine.effects import EffectRows, Effects
from statefun.protocol.runtime_pb2 import EffectStream, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, MESSAGE_SCHEMA, arrow_stream
from statefun.runtime.spark_internals.task import batch_number

_INLINE_BYTES = 256 * 1024
"""The largest size, in bytes, of a task's effects that go through the driver, so that no file is written.

The limit is for all effects of the task: Spark ends a job whose results are too large."""
_FULL_BYTES = 32 * 1024 * 1024
"""The size of effects, in bytes, at which a task writes them to files, to limit the memory that it uses."""


class InlineBudget:
    """How many bytes of effects this process's present task may still pass to the driver."""

    def __init__(self) -> None:
        self._task = -1
        self._free = 0

    def takes(self, task: int, size: int) -> bool:
        """Reserve ``size`` bytes for a task; return whether they are within the limit.

        Args:
            task: the id of the task's attempt.
            size: the size of effects, in bytes.
        """
        if task != self._task:
            self._task, self._free = task, _INLINE_BYTES
        if size > self._free:
            return False
        self._free -= size
        return True


_inline = InlineBudget()


@attrs.frozen
class SegmentWriter:
    """Writes the effects of a Spark task as segments; must be used inside the task."""

    checkpoint: Folder

    @property
    def full_bytes(self) -> int:
        """The size of effects, in bytes, at which they must be written before more are collected."""
        return _FULL_BYTES

    def write(self, effects: Effects) -> Segment:
        """Convert ``effects`` to a segment, write large ones to files, and clear ``effects``."""
        task = TaskContext.get()
        if task is None:
            raise AssertionError("segments are written inside Spark tasks only")
        buckets, effects.buckets = effects.buckets, set()
        return Segment(
            partition=task.partitionId(),
            egress={
                egress: self._stream(rows, EGRESS_SCHEMA, task)
                for egress, rows in effects.egress.items()
                if rows
            },
            messages=self._stream(effects.messages, MESSAGE_SCHEMA, task)
            if effects.messages
            else None,
            buckets=sorted(buckets),
        )

    def _stream(self, rows: EffectRows, schema: pa.Schema, task: TaskContext) -> EffectStream:
        records = len(rows)
        content = arrow_stream(rows.take(), schema)
        if _inline.takes(task.taskAttemptId(), len(content)):
            return effect_stream(content, records)
        # Each attempt uses a unique name, so that files of a zombie are never in a manifest.
        name = f"{task.partitionId()}-{task.taskAttemptId()}-{uuid.uuid4().hex}.arrow"
        Outbox(self.checkpoint).batch_folder(batch_number()).write(name, content)
        return effect_stream(content, records, name)
