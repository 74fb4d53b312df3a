# SPDX-License-Identifier: Apache-2.0
"""Encodes the rows of a DataFrame as states of addresses, in Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from statefun.engine.address_keys import address_key
from statefun.engine.address_values import AddressValues
from statefun.engine.delays import send_wake_up
from statefun.engine.effects import Effects
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.loading.typed_cells import CellEncoder
from statefun.runtime.stored.decoded_rows import UNDECODED
from statefun.sdk.address import Address
from statefun.sdk.secrecy import reason
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import ValueSpec

ID_COLUMN = "id"
ENCODED_ROWS = "target binary, state binary, wake bigint, problem string"
"""The columns of encoded rows: the key of the address and its state, the due time of the wake-up that the address
needs, and why the row cannot be encoded."""
SEGMENT_COLUMN = "segment"
_ROWS_ARROW = pa.schema(
    [
        ("target", pa.binary()),
        ("state", pa.binary()),
        ("wake", pa.int64()),
        ("problem", pa.string()),
    ]
)


_Encoded = tuple[bytes, bytes, int | None, str | None]
"""A row of ``ENCODED_ROWS``."""


@attrs.frozen
class StateEncoder:
    """Encodes rows with an id and a column for each value as states of one function."""

    typename: str
    columns: Mapping[str, ValueSpec]
    """The declaration of the value in each column, by the column's name."""
    now: int
    """When the values were written, in milliseconds since the epoch."""
    stored: Mapping[str, ValueSpec] | None = None
    """The declarations of all values by present and former names, if there is a column of stored bytes, ``undecoded``."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Encode the rows of Arrow batches to rows of ``ENCODED_ROWS``; rows without values are left out."""
        encoders = {column: CellEncoder(spec.type) for column, spec in self.columns.items()}
        specs = {
            each.name: each for each in (*self.columns.values(), *(self.stored or {}).values())
        }
        expirations = [spec.expiration for spec in specs.values() if spec.expiration]
        for batch in batches:
            cells = {name: _cells(batch.column(name)) for name in encoders}
            has_bytes = self.stored is not None
            undecoded = _cells(batch.column(UNDECODED)) if has_bytes else [None] * len(batch)
            rows: list[_Encoded] = []
            for number, id_ in enumerate(batch.column(ID_COLUMN).to_pylist()):
                row = {name: column[number] for name, column in cells.items()}
                present = {name: cell for name, cell in row.items() if cell is not None}
                if not id_:
                    text = f"function {self.typename}: a row has {'no' if id_ is None else 'an empty'} id"
                    rows.append((b"", b"", None, text))
                elif present or undecoded[number]:
                    rows.append(
                        self._encoded(id_, present, undecoded[number] or {}, encoders, expirations)
                    )
            columns = zip(*rows, strict=True) if rows else ([],) * len(_ROWS_ARROW)
            yield pa.record_batch(
                [
                    pa.array(list(column), field.type)
                    for column, field in zip(columns, _ROWS_ARROW, strict=True)
                ],
                schema=_ROWS_ARROW,
            )

    def _encoded(
        self,
        id_: str,
        cells: Mapping[str, Any],
        undecoded: Mapping[str, Any],
        encoders: Mapping[str, CellEncoder],
        expirations: Sequence[Any],
    ) -> _Encoded:
        values = AddressValues(None)
        for name, stored in undecoded.items():
            value = TypedValue(stored["typename"], stored["value"])
            problem = self._problem(name, value, cells, encoders)
            if problem is None:
                values.apply({(self.stored or {})[name].name: value})
            else:
                text = f"the value {name} of {self.typename}/{id_} cannot be taken from the column {UNDECODED}: {problem}"
                return b"", b"", None, text
        taken = frozenset(values.values)
        for column, cell in cells.items():
            name = self.columns[column].name
            if name in taken:  # the cell is not exactly the stored value
                continue
            try:
                values.apply({name: encoders[column].encode(cell)})
            except Exception as error:  # noqa: BLE001 - whatever a user's serializer raises
                why = reason(error, self.columns[column].type)
                text = f"the value {name} of {self.typename}/{id_} does not fit its type: {why}"
                return b"", b"", None, text
        values.renew(expirations, values.values.keys(), self.now)
        wake = values.next_wake_up(self.now)
        namespace, _, name = self.typename.rpartition("/")
        return address_key(Address(namespace, name, id_)), values.encoded() or b"", wake, None

    def _problem(
        self,
        name: str,
        value: TypedValue,
        cells: Mapping[str, Any],
        encoders: Mapping[str, CellEncoder],
    ) -> str | None:
        """Return why a value in the column of stored bytes cannot be taken; None if it can."""
        spec = (self.stored or {}).get(name)
        if spec is None:
            return "the function does not declare it"
        if not value.has_value or not spec.type.reads(value.typename):
            return f"it is stored as {value.typename}, and declared as {spec.type.typename}"
        try:
            spec.type.decode(*value)
        except Exception as error:  # noqa: BLE001 - whatever a user's deserializer raises
            return f"it does not decode as {value.typename}: {reason(error, spec.type)}"
        for column, each in self.columns.items():
            if each.name == spec.name and not encoders[column].shows(cells.get(column), value):
                return f"the column {column} shows another value; leave one of the two out, with null in its place"
        return None


@attrs.frozen
class WakeUps:
    """Sends the wake-ups of encoded rows; Spark calls this object in the tasks of a micro-batch."""

    checkpoint: Folder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the wake-ups of all rows as segments of the outbox; yield the segments, serialized."""
        writer, effects = SegmentWriter(self.checkpoint), Effects()
        for batch in batches:
            targets, dues = (batch.column(name).to_pylist() for name in ("target", "wake"))
            for target, due in zip(targets, dues, strict=True):
                send_wake_up(target, due, effects)
                if effects.size >= writer.full_bytes:
                    yield _segment(writer, effects)
        if effects:
            yield _segment(writer, effects)


def _segment(writer: SegmentWriter, effects: Effects) -> pa.RecordBatch:
    content = writer.write(effects).SerializeToString()
    return pa.record_batch({SEGMENT_COLUMN: pa.array([content], pa.binary())})


def _cells(column: pa.Array) -> list[Any]:
    """Return the cells of a column as Python objects, with maps as dicts."""
    cells: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return cells
