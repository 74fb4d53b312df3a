# SPDX-License-Identifier: Apache-2.0
"""The form of the Arrow batches of ``applyInPandasWithState`` between Spark and its Python workers.

Based on ``ApplyInPandasWithStateSerializer`` (``pyspark/sql/pandas/serializers.py``) and
``ApplyInPandasWithStateWriter.scala`` of Spark 4.2.0. A batch has the rows of many groups, one group after
the other. Its last column has one struct per group, from the first row on: the group's state and the range
of its rows. The rows of a large group continue in the next batches. A result batch has three columns that
Spark reads independently, each from the first row on: counts, data, and states.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from statefun.runtime.columns import values_of
from statefun.runtime.spark_internals.pickled_state import pickled, unpickled

_COUNTS = pa.struct([("dataCount", pa.int32()), ("stateCount", pa.int32())])
_STATE = pa.struct(
    [
        ("properties", pa.string()),
        ("keyRowAsUnsafe", pa.binary()),
        ("object", pa.binary()),
        ("oldTimeoutTimestamp", pa.int64()),
    ]
)
_NO_TIMEOUT = -1


class GroupedBatch:
    """An Arrow batch from Spark: the rows and the state of each group."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        state = batch.column(batch.num_columns - 1)
        entries = state.slice(0, batch.num_rows - state.null_count)
        self.starts: list[int] = values_of(entries.field("startOffset"))
        """The number of the first row of each group."""
        self.counts: list[int] = values_of(entries.field("numRows"))
        """The number of rows of each group."""
        self.key_rows: list[bytes] = values_of(entries.field("keyRowAsUnsafe"))
        """The grouping key of each group, in Spark's form."""
        self.properties = entries.field("properties")[0].as_py() if len(entries) else "{}"
        """The properties that Spark sends with each state; they are equal for a whole micro-batch."""
        ends = values_of(entries.field("isLastChunk"))
        self.unfinished = None if not ends or ends[-1] else len(ends) - 1
        """The number of the group whose rows continue in the next batch; None if there is none."""
        self._objects: list[bytes | None] = values_of(entries.field("object"))

    def state(self, group: int) -> bytes | None:
        """Return the state of a group, which is one binary column; None if the group has no state.

        Raises:
            CheckpointError: if the state is stored in another form.
        """
        row = self._objects[group]
        return unpickled(row) if row else None


class StateUpdates:
    """New states of groups, which are returned to Spark.

    Args:
        properties: the states' properties, from a batch of the task.
    """

    def __init__(self, properties: str) -> None:
        self.size = 0
        """The total size of the added states, in bytes."""
        self._key_rows: list[bytes] = []
        self._objects: list[bytes | None] = []
        values = json.loads(properties)
        self._updated = _json({**values, "defined": True, "updated": True, "removed": False})
        self._removed = _json({**values, "defined": False, "updated": False, "removed": True})

    def __len__(self) -> int:
        return len(self._key_rows)

    def add(self, key_row: bytes, value: bytes | None) -> None:
        """Add the new state of a group; None removes the group's state."""
        self.size += len(value or b"")
        self._key_rows.append(key_row)
        self._objects.append(None if value is None else pickled(value))

    def _property_column(self) -> pa.Array:
        if None not in self._objects:  # as usual
            return pa.repeat(self._updated, len(self))
        texts = [self._removed if each is None else self._updated for each in self._objects]
        return pa.array(texts, pa.string())

    def arrays(self) -> list[pa.Array]:
        """Return the added states as Arrow columns, in Spark's form."""
        return [
            self._property_column(),
            pa.array(self._key_rows, pa.binary()),
            pa.array(self._objects, pa.binary()),
            pa.repeat(pa.scalar(_NO_TIMEOUT, pa.int64()), len(self)),
        ]


def result_batch(name: str, data: Sequence[bytes], updates: StateUpdates) -> pa.RecordBatch:
    """Return an Arrow batch for Spark with the results of a Python function and the new states of groups.

    Args:
        name: the name of the only column of the results, which is binary.
        data: the column's values.
        updates: the new states.
    """
    rows = max(1, len(data), len(updates))
    counts = [pa.array([count] * rows, pa.int32()) for count in (len(data), len(updates))]
    return pa.record_batch(
        [
            _struct(counts, _COUNTS, rows),
            _struct([pa.array(data, pa.binary())], pa.struct([(name, pa.binary())]), rows),
            _struct(updates.arrays(), _STATE, rows),
        ],
        names=["_0", "_1", "_2"],
    )


def _json(properties: dict[str, object]) -> str:
    # Spark parses this text for every changed state: the shorter, the better.
    return json.dumps(properties, separators=(",", ":"))


def _struct(columns: list[pa.Array], type_: pa.StructType, rows: int) -> pa.StructArray:
    """Combine columns into a column of ``rows`` structs; shorter columns are filled with nulls."""
    equally_long = [
        column
        if len(column) == rows
        else pa.concat_arrays([column, pa.nulls(rows - len(column), column.type)])
        for column in columns
    ]
    return pa.StructArray.from_arrays(equally_long, fields=list(type_))
