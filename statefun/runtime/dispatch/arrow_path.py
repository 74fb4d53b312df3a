# SPDX-License-Identifier: Apache-2.0
"""Evaluates the operator on whole Arrow batches instead of several pandas frames per address.

Input and output have the form of Spark's ``ApplyInPandasWithStateSerializer``. A batch holds the
rows of many addresses, one after the other. Its last column has one struct per address, from
the top: the address's state and the range of its rows. An address with many rows goes on in the
next batches. A result batch has three columns that are read independently, each from the top:
counts, outcomes, and states.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyspark
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from statefun.runtime.dispatch.groups import COLUMNS, AddressValues, Columns, Group
from statefun.runtime.dispatch.operator import Operator
from statefun.sdk.errors import CheckpointError

_COUNTS = pa.struct([("dataCount", pa.int32()), ("stateCount", pa.int32())])
_OUTCOME = pa.struct([("outcome", pa.binary())])
_STATE = pa.struct(
    [
        ("properties", pa.string()),
        ("keyRowAsUnsafe", pa.binary()),
        ("object", pa.binary()),
        ("oldTimeoutTimestamp", pa.int64()),
    ]
)
_NO_TIMEOUT = -1


class ArrowPath:
    """Takes the place of Spark's serializer for tasks that run our operator."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        """Read Spark's input."""
        return ArrowStreamSerializer().load_stream(stream)

    def dump_stream(self, batches: Iterator[pa.RecordBatch], stream: IO[bytes]) -> None:
        """Evaluate ``batches`` one at a time and write the results."""
        results = evaluate(self._operator, batches)
        ArrowStreamSerializer(write_start_stream=True).dump_stream(results, stream)


def evaluate(operator: Operator, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Dispatch the rows of ``batches``; return result batches."""
    evaluation = operator.start()
    continued: AddressValues | None = None
    properties = "{}"
    for batch in batches:
        chunk = _Chunk(batch, continued)
        properties = chunk.properties
        states = _States(properties)
        for group in evaluation.dispatch(chunk):
            if group.values.changed and group.values is not chunk.continued:
                states.add(chunk.key_row(group), group.values)
        continued = chunk.continued
        # After a failure Spark's input still has to be read, but no result goes back.
        if states and not evaluation.failed:
            yield _result([], states)
    yield _result(evaluation.finish(), _States(properties))


class _Chunk:
    """A batch of Spark's: the rows of many addresses, and the range of each address."""

    def __init__(self, batch: pa.RecordBatch, continued: AddressValues | None) -> None:
        state = batch.column(batch.num_columns - 1)
        entries = state.slice(0, batch.num_rows - state.null_count)
        starts = entries.field("startOffset")
        caller, typename, value, trace = (batch.column(name).to_pylist() for name in COLUMNS)
        self._columns = Columns(
            caller, typename, value, trace, lambda name, row: batch.column(name)[row].as_py()
        )
        self._keys = batch.column("target").take(starts).to_pylist()
        self._starts = starts.to_pylist()
        self._counts = entries.field("numRows").to_pylist()
        self._key_rows = dict(
            zip(self._starts, entries.field("keyRowAsUnsafe").to_pylist(), strict=True)
        )
        self._objects = entries.field("object").to_pylist()
        self.properties = entries.field("properties")[0].as_py() if len(entries) else "{}"
        """Spark's properties of a state beside its value, equal for a whole micro-batch."""
        self._before = continued
        ends = entries.field("isLastChunk").to_pylist()
        self._unfinished = None if ends and ends[-1] else len(ends) - 1
        self.continued = None if ends else continued
        """After the iteration: the values of the last address, if it goes on in the next batch."""

    def __iter__(self) -> Iterator[Group]:
        """Return a group for each address; the first one may continue the batch before."""
        for index, key in enumerate(self._keys):
            values = (index == 0 and self._before) or self._values(index)
            if index == self._unfinished:
                self.continued = values
            start = self._starts[index]
            end = start + self._counts[index]
            yield Group(key, self._columns, start, end, values, index != self._unfinished)

    def key_row(self, group: Group) -> bytes:
        """Return the grouping key of ``group`` in Spark's form."""
        key_row: bytes = self._key_rows[group.start]
        return key_row

    def _values(self, index: int) -> AddressValues:
        stored = self._objects[index] if self._objects else None
        return AddressValues(_stored(stored) if stored else None)


class _States:
    """New states of addresses, on their way back to Spark."""

    def __init__(self, properties: str) -> None:
        self.properties = properties
        self._properties: list[str] = []
        self._key_rows: list[bytes] = []
        self._objects: list[bytes | None] = []
        said = json.loads(properties)
        self._updated = _json({**said, "defined": True, "updated": True, "removed": False})
        self._removed = _json({**said, "defined": False, "updated": False, "removed": True})

    def __len__(self) -> int:
        return len(self._key_rows)

    def add(self, key_row: bytes, values: AddressValues) -> None:
        encoded = values.encoded()
        self._key_rows.append(key_row)
        self._properties.append(self._updated if encoded is not None else self._removed)
        self._objects.append(None if encoded is None else pickle.dumps((encoded,)))

    def arrays(self) -> list[pa.Array]:
        return [
            pa.array(self._properties, pa.string()),
            pa.array(self._key_rows, pa.binary()),
            pa.array(self._objects, pa.binary()),
            pa.array([_NO_TIMEOUT] * len(self), pa.int64()),
        ]


def _json(properties: dict[str, object]) -> str:
    # Spark parses this text for every changed state: the shorter, the better.
    return json.dumps(properties, separators=(",", ":"))


def _result(outcomes: list[bytes], states: _States) -> pa.RecordBatch:
    rows = max(1, len(outcomes), len(states))
    counts = [pa.array([count] * rows, pa.int32()) for count in (len(outcomes), len(states))]
    data = [pa.array(outcomes, pa.binary())]
    return pa.record_batch(
        [
            _struct(counts, _COUNTS, rows),
            _struct(data, _OUTCOME, rows),
            _struct(states.arrays(), _STATE, rows),
        ],
        names=["_0", "_1", "_2"],
    )


def _struct(columns: list[pa.Array], type_: pa.StructType, rows: int) -> pa.StructArray:
    """Combine columns that may be shorter than ``rows``, as Spark reads them by count."""
    padded = [
        column
        if len(column) == rows
        else pa.concat_arrays([column, pa.nulls(rows - len(column), column.type)])
        for column in columns
    ]
    return pa.StructArray.from_arrays(padded, fields=list(type_))


# How Spark pickles a row of one binary column: a converter for the row's schema, applied to
# bytes(bytearray(<text>, "latin-1")), where <text> is in UTF-8 behind its length in four bytes.
_TEXT = b"c__builtin__\nbytearray\nX"
_LENGTH = struct.Struct("<I")
_END = b"q\x03X\x07\x00\x00\x00latin-1q\x04\x86Rq\x05\x85Rq\x06tRq\x07."


def _stored(state: bytes) -> bytes:
    """Take the bytes out of a pickled row, without running a pickle."""
    start = state.find(_TEXT) + len(_TEXT) + _LENGTH.size
    end = start + _LENGTH.unpack_from(state, start - _LENGTH.size)[0]
    if start <= len(_TEXT) + _LENGTH.size or state[end:] != _END:
        raise CheckpointError(
            f"a stored state is not in the form that Spark {pyspark.__version__} should give it "
            f"({state[:200]!r}); run with spark.statefun.dispatch=pandas, and report this"
        )
    return state[start:end].decode().encode("latin-1")
