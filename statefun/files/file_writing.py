# SPDX-License-Identifier: Apache-2.0
"""Writes records as files, exactly once.

A file is first written under a hidden name. Then a marker of progress is replaced, which names it; then
it gets its own name, which whoever finds the marker does as well. So a file appears once, whole, and
never again, even if somebody takes it away at once.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from statefun.components.running import EgressRecord, Folder, Marker, UncertainError, Writing
from statefun.files.file_records import FOLDER
from statefun.files.file_settings import EgressFiles, FileFormat

_OWN = "_statefun"
"""The folder of markers and of files that are not complete; readers of folders leave it out."""


def write_files(writing: Writing) -> FileCluster:
    """Return the connection of a lane."""
    return FileCluster(writing)


class FileCluster:
    """A folder that records are written to; see :class:`~statefun.components.running.Cluster`."""

    def __init__(self, writing: Writing) -> None:
        settings: EgressFiles = writing.egress.settings
        self._writing = writing
        self._format = settings.format
        self._folder = Folder.at(settings.folder)
        place = f"{quote(str(writing.egress.id), safe='')}-{writing.query_id}-{writing.lane}"
        self._marker_name = f"{_OWN}/{place}.json"
        # Several egresses of several applications may write to one folder.
        self._place = f"{hashlib.sha256(place.encode()).hexdigest()[:16]}-{writing.lane}"
        self._owner: str | None = None

    def open(self) -> Marker | None:
        """Finish what an earlier connection has begun; return the progress."""
        try:
            content = self._read()
            if content is None:
                return None
            self._name_files(content["files"])
            marker = Marker.of_json(content["marker"])
        except OSError as error:
            raise UncertainError(str(error)) from error
        self._owner = marker.owner
        return marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write records in new files, a file for each topic, together with the progress."""
        by_topic: defaultdict[str, list[bytes]] = defaultdict(list)
        for record in records:
            by_topic[record.topic].append(record.value or b"")
        files: list[tuple[str, str]] = []
        try:
            for topic, lines in by_topic.items():
                name = f"part-{marker.batch:09}-{marker.records:09}-{self._place}"
                name += ".parquet" if self._format is FileFormat.PARQUET else ".jsonl"
                own = f"{_OWN}/{marker.owner[:8]}-{quote(topic, safe='')}-{name}"
                parent, _, hidden = own.rpartition("/")
                self._folder.child(parent).write(hidden, self._content(lines))
                files.append((own, name if topic == FOLDER else f"{topic}/{name}"))
            self._commit(marker, files)
            self._name_files(files)
        except OSError as error:
            raise UncertainError(str(error)) from error
        self._writing.went_well()

    def close(self) -> None:
        """Hold nothing."""

    def _commit(self, marker: Marker, files: Sequence[tuple[str, str]]) -> None:
        found = self._read()
        if found is not None and found["marker"]["owner"] not in {self._owner, marker.owner}:
            raise UncertainError("another run has taken over")
        content = {
            "marker": marker.to_json(),
            "files": files,
        }
        folder, _, name = self._marker_name.rpartition("/")
        self._folder.child(folder).write(name, json.dumps(content).encode())
        self._owner = marker.owner

    def _read(self) -> dict[str, Any] | None:
        folder, _, name = self._marker_name.rpartition("/")
        try:
            content: dict[str, Any] = json.loads(self._folder.child(folder).read(name))
        except FileNotFoundError:
            return None
        return content

    def _name_files(self, files: Sequence[Sequence[str]]) -> None:
        """Give files their names, as far as they do not have them yet."""
        for own, name in files:
            if self._folder.has(own):
                self._folder.move(own, name)

    def _content(self, lines: Sequence[bytes]) -> bytes:
        if self._format is FileFormat.JSON_LINES:
            return b"".join(line + b"\n" for line in lines)
        import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

        sink = io.BytesIO()
        pq.write_table(table_of([json.loads(line) for line in lines]), sink)
        return sink.getvalue()


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows as a table; a column whose values have no common type has them as JSON.

    >>> table_of([{"a": 1}, {"a": 2.5, "b": "x"}, {"b": [1]}]).to_pylist()
    [{'a': 1.0, 'b': None}, {'a': 2.5, 'b': '"x"'}, {'a': None, 'b': '[1]'}]
    >>> table_of([{"a": {}}, {"a": {}}]).to_pylist(), table_of([{}, {}]).num_rows
    ([{'a': '{}'}, {'a': '{}'}], 2)
    """
    names = dict.fromkeys(name for row in rows for name in row) or ["_"]  # else there were no rows
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    return pa.table(columns)


def _column(values: Sequence[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        column = None
    if column is None or _has_empty(column.type):  # Parquet has no objects without fields
        column = pa.array([None if value is None else json.dumps(value) for value in values])
    return column


def _has_empty(type_: pa.DataType) -> bool:
    """Tell whether a type has a structure without fields in it."""
    if pa.types.is_struct(type_) and not type_.num_fields:
        return True
    return any(_has_empty(type_.field(index).type) for index in range(type_.num_fields))
