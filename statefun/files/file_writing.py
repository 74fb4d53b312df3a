# SPDX-License-Identifier: Apache-2.0
"""Writes records as files, exactly once.

Records are gathered in a hidden folder of their lane, together with a marker of progress: the pieces and
files that the marker names count, and the rest of the folder does not. When enough records are gathered,
files are written under hidden names. Then a new marker names these files, and no longer the gathered
records. Then the files get their own names; a later connection that reads the marker does the same. So a
file appears once, complete, and never again, even if somebody takes it away at once::

    gather   write a piece, if there are enough records for one; then the marker, which counts the piece
    roll     write hidden files; then the marker, which names them; then give them their own names
    claim    roll the records that an earlier run has gathered; then delete all that does not count
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import chain
from urllib.parse import quote

import attrs
import pyarrow as pa

from statefun.components.running import (
    EgressRecord,
    Folder,
    Marker,
    UncertainError,
    Writing,
    read_framed,
    write_framed,
)
from statefun.files.file_records import FOLDER, JSON_LINES, PARQUET
from statefun.files.file_settings import EgressFiles
from statefun.files.gathered import GatheredRecords, by_topic, decode, encode
from statefun.files.rows import Columns
from statefun.sdk.errors import ConnectorError

_OWN = "_statefun"
"""The folder for markers, pieces and hidden files; readers of folders leave it out."""
_MARKER = "marker"
_GROUP_BYTES = 32 * 1024 * 1024
"""How many bytes of JSON become a row group of Parquet."""


def write_files(writing: Writing) -> FileCluster:
    """Return the connection of a lane."""
    return FileCluster(writing)


@attrs.frozen
class _Progress:
    """The content of the marker's file."""

    marker: Marker
    gathered: GatheredRecords = attrs.field(factory=GatheredRecords)
    files: Sequence[tuple[str, str]] = ()
    """The hidden name and the own name of each of the last files."""

    def encode(self) -> bytes:
        head = {
            "marker": self.marker.to_json(),
            "pieces": self.gathered.pieces,
            "size": self.gathered.size,
            "files": self.files,
        }
        return json.dumps(head).encode() + b"\n" + encode(self.gathered.rest)

    @classmethod
    def decode(cls, content: bytes) -> _Progress:
        first, _, rest = content.partition(b"\n")
        head = json.loads(first)
        gathered = GatheredRecords(head["pieces"], head["size"], decode(rest))
        return cls(Marker.of_json(head["marker"]), gathered, head["files"])


class FileCluster:
    """The connection of a lane to a folder; see :class:`~statefun.components.running.Cluster`."""

    def __init__(self, writing: Writing) -> None:
        settings: EgressFiles = writing.egress.settings
        self._writing = writing
        self._settings = settings
        self._folder = Folder.at(settings.folder)
        # Several egresses of several applications may write to one folder.
        place = f"{quote(str(writing.egress.id), safe='')}-{writing.query_id}-{writing.lane}"
        self._place = f"{hashlib.sha256(place.encode()).hexdigest()[:16]}-{writing.lane}"
        self._own = self._folder.child(f"{_OWN}/{self._place}")
        self._progress: _Progress | None = None
        self._stored: bytes | None = None
        """The content of the marker's file, as this connection has read or written it last."""
        self._since = time.monotonic()
        """When the first gathered record came to this connection, by the monotonic clock."""

    def open(self) -> Marker | None:
        """Finish a roll that an earlier connection has begun; return the progress."""
        try:
            self._stored = self._read()
            if self._stored is None:
                return None
            self._progress = _Progress.decode(self._stored)
            self._own.sync_names()  # its writer may have crashed before the marker was on the disk
            self._name_files(self._progress.files)
        except OSError as error:
            raise UncertainError(str(error)) from error
        return self._progress.marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Gather records, or write them into files if there are enough, together with the progress."""
        before = self._progress
        if before is None and marker.batch >= 0:
            # A lane claims its folder before its first batch, so there was a marker. If its file system
            # has gone away, records that are written now would be missing when it comes back.
            raise UncertainError(
                f"{self._own.shown}/{_MARKER} is missing, which keeps the progress; mount its file "
                "system, or restore the file"
            )
        gathered = GatheredRecords() if before is None else before.gathered
        if not gathered.size:
            self._since = time.monotonic()
        gathered = gathered.with_records(records)
        is_claim = before is None or before.marker.owner != marker.owner
        try:
            if gathered.size and (self._is_due(gathered) or (is_claim and before is not None)):
                self._roll(marker, gathered)
            else:
                self._gather(marker, gathered)
            if is_claim:
                self._clean()
        except OSError as error:
            raise UncertainError(str(error)) from error
        self._writing.went_well()

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Write the gathered records into files if it is time; return the time until then otherwise."""
        progress = self._progress
        if progress is None or not progress.gathered.size:
            return None
        if not (is_last or self._is_due(progress.gathered)):
            return self._settings.roll_every - self._age
        try:
            self._roll(progress.marker, progress.gathered)
        except OSError as error:
            raise UncertainError(str(error)) from error
        return None

    def close(self) -> None:
        """Do nothing: the connection has no buffers."""

    @property
    def _age(self) -> timedelta:
        return timedelta(seconds=time.monotonic() - self._since)

    def _is_due(self, gathered: GatheredRecords) -> bool:
        settings = self._settings
        return gathered.size >= settings.roll_size or self._age >= settings.roll_every

    def _gather(self, marker: Marker, gathered: GatheredRecords) -> None:
        if gathered.is_full:
            write_framed(self._own, _piece(marker, gathered.pieces), encode(gathered.rest))
            gathered = gathered.with_piece()
        self._commit(_Progress(marker, gathered))

    def _roll(self, marker: Marker, gathered: GatheredRecords) -> None:
        """Write the gathered records into files."""
        files: list[tuple[str, str]] = []
        suffix = JSON_LINES if self._settings.columns is None else PARQUET
        name = f"part-{marker.batch:09}-{marker.records:09}-{self._place}{suffix}"
        gatherer = marker if self._progress is None else self._progress.marker
        pieces = [_piece(gatherer, number) for number in range(gathered.pieces)]
        records = chain(chain.from_iterable(map(self._records, pieces)), gathered.rest)
        for number, (topic, lines) in enumerate(by_topic(records).items()):
            hidden = f"{marker.owner[:8]}-{number}-{name}"
            self._own.write(hidden, content_of(lines, self._settings.columns))
            files.append((hidden, name if topic == FOLDER else f"{topic}/{name}"))
        self._commit(_Progress(marker, files=files))
        self._name_files(files)
        for piece in pieces:
            self._own.remove(piece)

    def _records(self, piece: str) -> list[tuple[str, bytes]]:
        try:
            return decode(read_framed(self._own, piece))
        except FileNotFoundError:
            self._check_unchanged()
            raise ConnectorError(
                f"{self._settings.owner}: {self._own.shown}/{piece} is missing, which has records "
                "that were gathered for a file; restore the file"
            ) from None

    def _commit(self, progress: _Progress) -> None:
        self._check_unchanged()
        content = progress.encode()
        write_framed(self._own, _MARKER, content)
        self._progress, self._stored = progress, content

    def _check_unchanged(self) -> None:
        """Check that no other connection has written since this one was opened.

        Raises:
            UncertainError: if another one has; gathered records may be in files meanwhile.
        """
        if self._read() != self._stored:
            raise UncertainError("another run has written since")

    def _read(self) -> bytes | None:
        try:
            return read_framed(self._own, _MARKER)
        except FileNotFoundError:
            return None

    def _name_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Give hidden files their own names, if they do not have them yet."""
        for hidden, name in files:
            own = f"{_OWN}/{self._place}/{hidden}"
            if self._folder.has(own):
                self._folder.move(own, name)
            else:  # an earlier connection has, and may have crashed before that was on the disk
                parent, _, file = name.rpartition("/")
                (self._folder.child(parent) if parent else self._folder).sync(file)

    def _clean(self) -> None:
        """Delete files of earlier runs that no marker counts."""
        for name in self._own.names():
            if name != _MARKER:
                self._own.remove(name)


def content_of(lines: Sequence[bytes], columns: Columns | None) -> bytes:
    """Return the content of a file with records that were checked when they were sent."""
    if columns is None:
        return b"".join(line + b"\n" for line in lines)
    import pyarrow.parquet as pq  # noqa: PLC0415 - slow to import, and rarely needed

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, columns.schema) as writer:
        for group in _groups(lines):
            writer.write_table(columns.table(group))
    return bytes(sink.getvalue())


def _groups(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size = 0
    for line in lines:
        group.append(line)
        size += len(line)
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _piece(marker: Marker, number: int) -> str:
    return f"{marker.owner[:8]}-piece-{number:06}"
