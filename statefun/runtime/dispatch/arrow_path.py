# SPDX-License-Identifier: Apache-2.0
"""Calls functions with the rows of Arrow batches; Spark's own way makes pandas frames for each address."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from statefun.engine.address_values import AddressValues
from statefun.engine.alarms import on_standby
from statefun.engine.effects import PIECE_BYTES
from statefun.engine.groups import COLUMNS, Columns, Group
from statefun.runtime.columns import values_of
from statefun.runtime.dispatch.operator import OUTCOME, Operator
from statefun.runtime.spark_internals.state_batches import (
    GroupedBatch,
    StateUpdates,
    result_batch,
)


def evaluate(operator: Operator, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call functions with the rows of Arrow batches; yield Arrow batches with outcomes and new states."""
    return on_standby(_evaluate(operator, batches))


def _evaluate(operator: Operator, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    evaluation = operator.start(lets_leave=True)
    last_values: AddressValues | None = None
    properties = "{}"
    for batch in batches:
        rows = _RowBatch(batch, last_values)
        properties = rows.properties
        states = StateUpdates(properties)
        for group in evaluation.dispatch(rows):
            if group.values.changed and group.values is not rows.last_values:
                states.add(rows.key_row(group), group.values.encoded())
            if states.size >= PIECE_BYTES and not evaluation.failed:
                yield result_batch(OUTCOME, [], states)
                states = StateUpdates(properties)
        last_values = rows.last_values
        # After a failure Spark's input still has to be read, but no result goes back.
        if states and not evaluation.failed:
            yield result_batch(OUTCOME, [], states)
    yield result_batch(OUTCOME, evaluation.finish(), StateUpdates(properties))


class _RowBatch:
    """An Arrow batch from Spark: the rows of many addresses, and the range of rows of each address."""

    def __init__(self, batch: pa.RecordBatch, last_values: AddressValues | None) -> None:
        self._grouped = GroupedBatch(batch)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        read = (values_of(columns[name]) for name in COLUMNS)
        self._columns = Columns(
            *read,
            cell=lambda name, row: columns[name][row].as_py(),
            column=lambda name: values_of(columns[name]),
        )
        starts = self._grouped.starts
        self._keys = values_of(batch.column("target").take(pa.array(starts, pa.int32())))
        self._key_rows = dict(zip(starts, self._grouped.key_rows, strict=True))
        self.properties = self._grouped.properties
        self._earlier_values = last_values
        self.last_values = None if starts else last_values
        """The state values of the last address if its rows continue in the next batch, else None.

        The attribute is set when an iteration over this object has ended."""

    def __iter__(self) -> Iterator[Group]:
        """Yield a group for each address; the first group may continue the last address of the previous batch."""
        grouped = self._grouped
        for index, key in enumerate(self._keys):
            values = (index == 0 and self._earlier_values) or AddressValues(grouped.state(index))
            if index == grouped.unfinished:
                self.last_values = values
            start = grouped.starts[index]
            end = start + grouped.counts[index]
            yield Group(key, self._columns, start, end, values, index != grouped.unfinished)

    def key_row(self, group: Group) -> bytes:
        """Return the grouping key of ``group``, which is its address, in Spark's form."""
        return self._key_rows[group.start]
