# SPDX-License-Identifier: Apache-2.0
"""The files of a snapshot: an archive of the files that change, which ``snapshot.json`` names, and all other files.

The file ``snapshot.json`` is replaced last, in one step, and so decides between an earlier snapshot and a later one: until
then, the former is complete, and afterwards the latter. The archive is a ZIP file, whose size and SHA-256 are in
``snapshot.json``; it has the changing files of one micro-batch, and a list of the files that never change and belong to the
snapshot, with their sizes.
A snapshot of an earlier version has no archive: all files lie in its folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath

import attrs

from statefun.inspect.copied_files import OUTBOX, STATE, is_permanent, read_path, version_of
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.former_queries import FORMER_QUERIES
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed
from statefun.runtime.checkpoint.ingress_order import INGRESSES
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE
from statefun.runtime.spark_internals.log_files import COMMITS, OFFSETS_FOLDER
from statefun.sdk.errors import CheckpointError, ConfigurationError

SNAPSHOT = "snapshot.json"
"""The file that makes a snapshot complete: it is written last."""
_OF_RUN = {"driver.lock", "jvm.lock", "unlocked", "lease", SNAPSHOT}
"""The names that show which processes use the checkpoint, and the file of a snapshot."""
_OF_PROCESSES = {"snapshot.lock", "lease"}
"""The names that show which process makes a snapshot."""
_ARCHIVE = re.compile(r"files-\d+-[0-9a-f]{32}\.zip")
"""The name of an archive."""
_CHANGING = "checkpoint/"
"""The folder of the changing files in the archive."""
_NOT_READABLE = (ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""The errors for an archive that is none; one of a method of compression that Python does not know is a RuntimeError."""
_PERMANENT = "permanent.json"
"""The file of the archive that lists the files that never change."""


@attrs.frozen
class Archive:
    """The facts in the file of a snapshot about its archive; they show any damage of the archive."""

    name: str
    size: int
    """The number of bytes."""
    sha256: str
    """The SHA-256 of the content, in hexadecimal digits."""

    @classmethod
    def of(cls, name: str, content: bytes) -> Archive:
        """Return the facts of an archive with this content."""
        return cls(name, len(content), hashlib.sha256(content).hexdigest())

    def read(self, folder: Folder) -> bytes:
        """Return the content of the archive.

        Raises:
            CheckpointError: if the archive is missing, or has other content.
        """
        try:
            content = folder.read(self.name)
        except FileNotFoundError:
            raise missing(folder, self.name) from None
        actual = Archive.of(self.name, content)
        if actual.size != self.size:
            problem = f"it has {actual.size} bytes, and had {self.size}"
            raise damaged(folder, self.name, problem)
        if actual != self:
            raise damaged(folder, self.name, f"its SHA-256 is not the one in {SNAPSHOT}")
        return content


@attrs.frozen
class SnapshotFacts:
    """The facts in the file of a snapshot: its micro-batch, its query, and when it was made."""

    batch: int
    """The newest micro-batch that is in the snapshot."""
    query_id: str
    """The id of the checkpoint's query."""
    created: datetime
    archive: Archive | None = None
    """The archive with the changing files; None in a snapshot of an earlier version."""

    @classmethod
    def read(cls, folder: Folder) -> SnapshotFacts:
        """Read the facts of the snapshot in a folder.

        Raises:
            CheckpointError: if the folder has no complete snapshot.
            ConfigurationError: if the folder is empty, or there is none.
        """
        try:
            content = json.loads(read_framed(folder, SNAPSHOT))
            if content.keys() == {"query"}:
                raise CheckpointError(
                    f"{folder.shown} has no complete snapshot: the command that makes its first one still runs, or was "
                    "interrupted: wait for its end, or run it again"
                )
            created = datetime.fromisoformat(content["created"])
            archive = content.get("archive")
            return cls(
                int(content["batch"]),
                str(content["query"]),
                created,
                None
                if archive is None
                else Archive(str(archive["name"]), int(archive["size"]), str(archive["sha256"])),
            )
        except FileNotFoundError:
            if not folder.names():
                raise ConfigurationError(f"there is no snapshot at {folder.shown}") from None
            raise CheckpointError(
                f"{folder.shown} has no complete snapshot: its file {SNAPSHOT} is missing"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(folder, SNAPSHOT, error) from error

    def write(self, folder: Folder) -> None:
        """Write the file with the facts, which makes the snapshot in a folder complete."""
        content = {
            "batch": self.batch,
            "query": self.query_id,
            "created": self.created.isoformat(),
            "archive": None if self.archive is None else attrs.asdict(self.archive),
        }
        write_framed(folder, SNAPSHOT, json.dumps(content).encode())


def claimed_by(folder: Folder) -> str | None:
    """Return the id of the query whose snapshot a folder has, or is to have; None if the folder has none.

    Raises:
        CheckpointError: if the file of the snapshot is damaged.
    """
    try:
        return str(json.loads(read_framed(folder, SNAPSHOT))["query"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(folder, SNAPSHOT, error) from error


def claim(folder: Folder, query_id: str) -> None:
    """Note in a folder without a snapshot whose first snapshot it is to have, so that it can be repeated after a crash."""
    write_framed(folder, SNAPSHOT, json.dumps({"query": query_id}).encode())


@attrs.frozen
class SnapshotFiles:
    """The files of a snapshot."""

    contents: Mapping[str, bytes]
    """The contents of the files that may change, by their paths in the checkpoint."""
    permanent: Mapping[str, int]
    """The sizes of the files that never change, by their paths in the checkpoint and in the snapshot."""

    @classmethod
    def read(cls, folder: Folder, facts: SnapshotFacts) -> SnapshotFiles:
        """Read the contents of the files that may change, and the list of the other files.

        Raises:
            CheckpointError: if the archive is damaged, or the snapshot was replaced meanwhile.
        """
        files = (
            cls._read_loose(folder, facts.batch)
            if facts.archive is None
            else cls._read_archive(folder, facts.archive)
        )
        for path in (INGRESSES, f"{OFFSETS_FOLDER}/{facts.batch}"):
            if path not in files.contents:
                raise missing(folder, path)
        return files

    @classmethod
    def _read_archive(cls, folder: Folder, facts: Archive) -> SnapshotFiles:
        """Read the archive with these facts."""
        content = facts.read(folder)
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                contents = {
                    each.removeprefix(_CHANGING): archive.read(each)
                    for each in archive.namelist()
                    if each.startswith(_CHANGING)
                }
                permanent = json.loads(archive.read(_PERMANENT))
        except _NOT_READABLE as error:
            raise damaged(folder, facts.name, error) from error
        return cls(contents, permanent)

    @classmethod
    def _read_loose(cls, folder: Folder, batch: int) -> SnapshotFiles:
        """Read the files of a snapshot of an earlier version, without those that an interrupted later one has added."""
        contents, permanent = {}, {}
        for path, size in folder.sizes().items():
            if path.partition("/")[0] in _OF_PROCESSES or _ARCHIVE.fullmatch(path):
                continue
            is_later = path.startswith(f"{STATE}/") and version_of(path) > batch + 1
            if is_later or not belongs(path, batch):
                continue
            if is_permanent(path):
                permanent[path] = size
                continue
            try:
                contents[path] = read_path(folder, path)
            except FileNotFoundError:
                raise missing(folder, path) from None
        return cls(contents, permanent)

    def write(self, folder: Folder, batch: int) -> Archive:
        """Write the archive; return its facts. No earlier one has its name."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_PERMANENT, json.dumps(dict(self.permanent)))
            for path, content in self.contents.items():
                archive.writestr(f"{_CHANGING}{path}", content)
        content = buffer.getvalue()
        facts = Archive.of(f"files-{batch}-{uuid.uuid4().hex}.zip", content)
        folder.write(facts.name, content)
        return facts


def belongs(path: str, batch: int) -> bool:
    """Return whether a file belongs into a copy: it is no lock, and of no micro-batch after ``batch``.

    >>> [belongs(path, 7) for path in ("offsets/7", "offsets/8", "outbox/8/manifest", "driver.lock", "timers/9")]
    [True, False, False, False, True]
    """
    head, _, rest = path.partition("/")
    name = PurePosixPath(path).name
    # Other parts of the database are copied with it; the former queries are added to those of the snapshot.
    is_part = name.startswith(f"{PLAYGROUND_FILE}-") or path == FORMER_QUERIES
    if head in _OF_RUN or name.startswith(".") or is_part:
        return False
    if head in {OFFSETS_FOLDER, COMMITS, OUTBOX}:
        number = rest.partition("/")[0]
        return number.isdecimal() and int(number) <= batch
    return True


def missing(snapshot: Folder, path: str) -> CheckpointError:
    """Return the error for a file of a snapshot that is missing."""
    return CheckpointError(
        f"{snapshot.shown}/{path} is missing; if a later snapshot has just replaced this one, delete what was restored, and "
        "repeat the command; otherwise use another copy"
    )


def is_empty(folder: Folder) -> bool:
    """Return whether a folder has no files but those that say which process makes a snapshot."""
    return not {*folder.names()} - _OF_PROCESSES


def remove_others(folder: Folder, kept: set[str]) -> None:
    """Delete all files in the folder of a snapshot but those with the paths in ``kept``, and those of its lock."""
    used = {str(parent) for path in kept for parent in PurePosixPath(path).parents}
    others: dict[str, list[str]] = {}
    for path in folder.sizes().keys() - kept:
        place, _, name = path.rpartition("/")
        if path.partition("/")[0] not in _OF_PROCESSES:
            others.setdefault(place, []).append(name)
    for place, names in others.items():
        if place and place not in used:
            folder.child(place).remove_all()
        else:
            (folder.child(place) if place else folder).remove_several(names)
