# SPDX-License-Identifier: Apache-2.0
"""Handing effects from a task to the outbox: small ones by value, large ones as files."""

from __future__ import annotations

import uuid

import attrs
from pyspark import TaskContext

from statefun.protocol.runtime_pb2 import Segment
from statefun.runtime.effects import EgressColumns
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import Outbox

_INLINE_BYTES = 256 * 1024
"""Up to here a segment travels through the driver: one file less to create, list and delete."""
_FULL_BYTES = 32 * 1024 * 1024
"""From here on effects are written out, so that a task's memory stays bounded."""


@attrs.frozen
class SegmentWriter:
    """Writes the segments of whatever task it is called in."""

    checkpoint: Folder

    def is_full(self, effects: EgressColumns) -> bool:
        """Tell whether ``effects`` should be written before more are collected."""
        return effects.size >= _FULL_BYTES

    def write(self, effects: EgressColumns) -> Segment:
        """Turn ``effects`` into a segment, and empty them."""
        task = TaskContext.get()
        if task is None:
            raise AssertionError("segments are written inside Spark tasks only")
        partition = task.partitionId()
        records = len(effects)
        content = effects.take()
        if len(content) <= _INLINE_BYTES:
            return Segment(partition=partition, content=content, egress_records=records)
        batch = int(task.getLocalProperty("streaming.sql.batchId") or 0)
        # A name of its own for every attempt: what a zombie writes is never in a manifest.
        name = f"{partition}-{task.taskAttemptId()}-{uuid.uuid4().hex}.arrow"
        Outbox(self.checkpoint).batch_folder(batch).write(name, content)
        return Segment(partition=partition, file=name, egress_records=records)
