# SPDX-License-Identifier: Apache-2.0
"""Writes the records of an egress into files, exactly once.

A lane gathers records in a hidden folder of its own, in files that are called pieces. The folder also has
the marker file: it holds the lane's marker, and says how many pieces are valid. When enough records are
gathered, the lane rolls them: it writes them into files with hidden names, then writes a marker file that
lists these files instead of the pieces, and then renames them to their final names. A later connection
that reads this marker file finishes the renaming. So a file appears once, complete, and never again, even
if another program removes it at once::

    gather   write a piece, if there are enough records for one; then the marker file, which counts it
    roll     write hidden files; then the marker file, which lists them; then rename them
    claim    roll the records that an earlier run has gathered; then delete all other files of the folder;
             then note in the checkpoint that the folder has a marker file
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from statefun.files.file_records import JSON_LINES, OWN_FOLDER, PARQUET
from statefun.files.file_settings import EgressFiles
from statefun.files.gathered import GatheredRecords, by_topic, decode, encode
from statefun.files.path_identity import identity_of
from statefun.files.rows import ParquetColumns
from statefun.sdk.errors import ConnectorError

_OWN = "_statefun"
"""The folder for marker files, pieces and hidden files; readers ignore it because of its name."""
_MARKER = "marker"
_GROUP_BYTES = 32 * 1024 * 1024
"""How many bytes of records, as JSON, become one row group of a Parquet file."""


def write_files(writing: Writing) -> FileCluster:
    """Return a new connection through which a lane of a file egress writes."""
    return FileCluster(writing)


@attrs.frozen
class _Progress:
    """The content of the marker file of a lane."""

    marker: Marker
    gathered: GatheredRecords = attrs.field(factory=GatheredRecords)
    files: Sequence[tuple[str, str]] = ()
    """The hidden name and the final name of each file that was written last."""

    def encode(self) -> bytes:
        columns = self.gathered.columns
        head = {
            "marker": self.marker.to_json(),
            "pieces": self.gathered.pieces,
            "size": self.gathered.size,
            "schema": columns and columns.encoded,
            "files": self.files,
        }
        return json.dumps(head).encode() + b"\n" + encode(self.gathered.rest)

    @classmethod
    def decode(cls, content: bytes, present: ParquetColumns | None) -> _Progress:
        """Decode the file's content; an earlier version has not stored columns: then they are the present ones."""
        first, _, rest = content.partition(b"\n")
        head = json.loads(first)
        columns = present
        if "schema" in head:
            columns = None if head["schema"] is None else ParquetColumns.decoded(head["schema"])
        gathered = GatheredRecords(head["pieces"], head["size"], decode(rest), columns)
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
        """The content of the marker file when this connection has read or written it last."""
        self._since = time.monotonic()
        """When this connection began to gather the records that are gathered now, by the monotonic clock."""
        self._is_noted = False
        """Whether the checkpoint has a note that the folder has the lane's marker file."""

    def open(self) -> Marker | None:
        """Rename files that an earlier connection has written but not renamed; return the lane's marker.

        Raises:
            UncertainError: if the folder has no marker file, although the checkpoint has a note that it had one.
        """
        with _retried():
            self._stored = self._read()
            if self._stored is None:
                if self._has_note():
                    raise self._missing_marker()
                return None
            self._progress = _Progress.decode(self._stored, self._settings.columns)
            self._own.sync_names()  # the writer of the marker may have crashed before it was on the disk
            self._rename_files(self._progress.files)
        return self._progress.marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Gather records, or write all gathered records into files if there are enough; store the marker."""
        before = self._progress
        if before is None and marker.batch >= 0:  # a lane claims its folder before its first batch
            raise self._missing_marker()
        if before is None or not before.gathered.size:
            gathered = GatheredRecords(columns=self._settings.columns)
            self._since = time.monotonic()
        else:
            gathered = before.gathered
        self._check_columns(records)
        gathered = gathered.with_records(records)
        is_claim = before is None or before.marker.owner != marker.owner
        with _retried():
            if gathered.size and (self._is_due(gathered) or (is_claim and before is not None)):
                self._roll(marker, gathered)
            else:
                self._gather(marker, gathered)
            if is_claim:
                self._clean()
            # Not with the claim alone: the connection that has claimed the folder may have failed then.
            if not self._is_noted:
                self._note()
        self._writing.went_well()

    def tend(self, *, is_last: bool) -> timedelta | None:
        """Write the gathered records into files if they are old or large enough.

        Args:
            is_last: whether no records follow; then the gathered records are written in any case.

        Returns:
            The time until the gathered records are old enough; None if no records are gathered now.
        """
        progress = self._progress
        if progress is None or not progress.gathered.size:
            return None
        if not (is_last or self._is_due(progress.gathered)):
            return self._settings.roll_every - self._age
        with _retried():
            self._roll(progress.marker, progress.gathered)
        return None

    def close(self) -> None:
        """Do nothing: ``write`` leaves nothing in memory that would have to be written."""

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
        """Write gathered records into files, store the marker, and rename the files."""
        files: list[tuple[str, str]] = []
        columns = gathered.columns
        suffix = JSON_LINES if columns is None else PARQUET
        name = f"part-{marker.batch:09}-{marker.records:09}-{self._place}{suffix}"
        gatherer = marker if self._progress is None else self._progress.marker
        pieces = [_piece(gatherer, number) for number in range(gathered.pieces)]
        records = chain(chain.from_iterable(map(self._records, pieces)), gathered.rest)
        for number, (topic, lines) in enumerate(by_topic(records).items()):
            hidden = f"{marker.owner[:8]}-{number}-{name}"
            with self._fitting():
                content = content_of(lines, columns)
            self._own.write(hidden, content)
            files.append((hidden, name if topic == OWN_FOLDER else f"{topic}/{name}"))
        self._commit(_Progress(marker, files=files))
        self._rename_files(files)
        for piece in pieces:
            self._own.remove(piece)

    def _missing_marker(self) -> UncertainError:
        """Return the error about a marker file that is missing.

        The file system is perhaps not mounted, and records that are written now would be missing once it is.
        """
        return UncertainError(
            f"the file {self._own.shown}/{_MARKER}, which stores how far the egress has written, is "
            "missing; mount the file system of the folder, or restore the file; if you have deleted it, choose "
            "another folder"
        )

    def _check_columns(self, records: Sequence[EgressRecord]) -> None:
        """Check that records can be written into files before they are gathered: afterwards, they would block others.

        The run that has sent them may have had another schema or format than this one, which publishes them.

        Raises:
            ConnectorError: if a record does not fit the columns.
        """
        columns = self._settings.columns
        if columns is not None:
            with self._fitting():
                for group in _groups([record.value or b"" for record in records]):
                    columns.table(group)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Replace an error about records that do not fit the columns by one that names the egress and the remedy."""
        try:
            yield
        except pa.ArrowException as error:
            raise ConnectorError(
                f"{self._settings.owner}: records for folder {self._folder.shown} do not fit the schema: {error}; if you have "
                "changed schema or format, start once with the former ones until the run has ended by itself or was "
                "stopped, and then change them"
            ) from error

    def _records(self, piece: str) -> list[tuple[str, bytes]]:
        try:
            return decode(read_framed(self._own, piece))
        except FileNotFoundError:
            self._check_unchanged()
            raise ConnectorError(
                f"{self._settings.owner}: the file {self._own.shown}/{piece}, which holds records for the "
                "next file of the egress, is missing; restore it"
            ) from None

    def _commit(self, progress: _Progress) -> None:
        self._check_unchanged()
        content = progress.encode()
        write_framed(self._own, _MARKER, content)
        self._progress, self._stored = progress, content

    def _check_unchanged(self) -> None:
        """Check that no other connection has written to the lane's folder since this one was opened.

        Raises:
            UncertainError: if another connection has written. It may also have written the gathered records
                into files.
        """
        if self._read() != self._stored:
            text = f"another run has written to {self._own.shown} since this run has opened it"
            raise UncertainError(text)

    def _read(self) -> bytes | None:
        try:
            return read_framed(self._own, _MARKER)
        except FileNotFoundError:
            return None

    def _rename_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Rename hidden files to their final names, unless an earlier connection has done that."""
        for hidden, name in files:
            own = f"{_OWN}/{self._place}/{hidden}"
            if self._folder.has(own):
                self._folder.move(own, name)
            else:  # an earlier connection has renamed it, and may have crashed before that was on the disk
                parent, _, file = name.rpartition("/")
                (self._folder.child(parent) if parent else self._folder).sync(file)

    @property
    def _name_of_note(self) -> str:
        return f"lane.{self._writing.lane}.folder"

    @property
    def _content_of_note(self) -> bytes:
        return f"{self._place} {identity_of(self._folder.location)}".encode(
            errors="surrogateescape"
        )

    def _has_note(self) -> bool:
        """Return whether the checkpoint has a note that the lane has a marker file in this very folder."""
        kept, name = self._writing.folder, self._name_of_note
        return kept is not None and kept.has(name) and kept.read(name) == self._content_of_note

    def _note(self) -> None:
        """Note in the checkpoint that the lane has a marker file in this folder."""
        if self._writing.folder is not None and not self._has_note():
            self._writing.folder.write(self._name_of_note, self._content_of_note)
        self._is_noted = True

    def _clean(self) -> None:
        """Delete all files of the lane's hidden folder except for the marker file."""
        for name in self._own.names():
            if name != _MARKER:
                self._own.remove(name)


@contextmanager
def _retried() -> Iterator[None]:
    """Replace an error of a file system by one after which the lane tries again."""
    try:
        yield
    except OSError as error:
        raise UncertainError(str(error)) from error


def content_of(lines: Sequence[bytes], columns: ParquetColumns | None) -> bytes:
    """Return the content of a file with these records: a Parquet file; JSON lines if ``columns`` is None."""
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
