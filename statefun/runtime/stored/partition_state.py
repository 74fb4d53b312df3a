# SPDX-License-Identifier: Apache-2.0
"""Reads one partition of the state as of a micro-batch, without Spark: a snapshot and the changes after it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged
from statefun.runtime.spark_internals.changelogs import Changelog, Version
from statefun.runtime.spark_internals.store_files import (
    TABLES,
    Snapshot,
    changelog_name,
    partition_folder,
    snapshot_name,
)
from statefun.runtime.spark_internals.store_rows import grouping_key, key_row, state_of
from statefun.sdk.errors import CheckpointError, ConfigurationError

_FEW = 8


class PartitionState:
    """One partition of the state, whose files are all open: the application may delete them meanwhile.

    Args:
        checkpoint: the checkpoint.
        partition: the number of the partition.
        version: the version of the partition's state.

    Raises:
        FileNotFoundError: if the application has deleted files of this version meanwhile.
        CheckpointError: if a file is damaged.
    """

    def __init__(self, checkpoint: Folder, partition: int, version: Version) -> None:
        self._checkpoint = checkpoint
        self._path = partition_folder(partition)
        self._folder = checkpoint.child(self._path)
        self._open = ExitStack()
        self._newest_first: list[tuple[str, bytes]] = []
        """The names and contents of the changelogs after the snapshot."""
        self._changelogs: dict[str, Changelog] = {}
        """The changelogs that :meth:`get` has decoded, by name."""
        self._gets = 0
        with ExitStack() as undo:
            undo.callback(self.close)
            self._snapshot = self._found_snapshot(version)
            undo.pop_all()

    def close(self) -> None:
        """Close the files, and delete temporary ones."""
        self._snapshot = None
        self._open.close()

    def get(self, key: bytes) -> bytes | None:
        """Return the state of the address with a key; None if it has none.

        Raises:
            CheckpointError: if a file is damaged.
        """
        row = key_row(key)
        self._gets += 1
        for name, content in self._newest_first:
            if name not in self._changelogs:
                self._changelogs[name] = self._decoded(name, content)
            changelog = self._changelogs[name]
            # The changes of a changelog are put in order for many keys, and searched for a few.
            if self._gets > _FEW or changelog.may_have(row):
                changes = self._changes(name, changelog)
                if row in changes:
                    return self._state(name, changes[row])
        if self._snapshot is None:
            return None
        try:
            value = self._snapshot.get(row)
        except Exception as error:  # the library raises its errors as Exception itself
            raise self._damaged(TABLES, error) from error
        return self._state(TABLES, value)

    def containing(self, part: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key of each address whose key contains ``part``, and its state, in any order.

        The changes after the snapshot are in memory meanwhile.

        Raises:
            CheckpointError: if a file is damaged.
        """
        changed: dict[bytes, bytes | None] = {}
        for name, content in reversed(self._newest_first):
            changed.update(self._changes(name, self._decoded(name, content)))
        for row, value in self._snapshot_rows(part):
            if row not in changed and part in (key := self._key(row)):
                yield key, self._state(TABLES, value) or b""
        for row, new in changed.items():
            if new is not None and part in (key := self._key(row)):
                yield key, self._state("a changelog", new) or b""

    def _snapshot_rows(self, part: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of the snapshot that have ``part`` anywhere in their encoded keys.

        An encoded key also has the length of the key, so the caller has to look at the key itself. The library's own
        loop would end silently at a damaged block.
        """
        if self._snapshot is None:
            return
        rows = self._snapshot.iter()
        rows.seek_to_first()
        while rows.valid():
            row = rows.key()
            if part in row:  # most values need not be copied
                yield row, rows.value()
            rows.next()
        try:
            rows.status()
        except Exception as error:  # as above
            raise self._damaged(TABLES, error) from error

    def _found_snapshot(self, version: Version) -> Any:
        """Open the newest snapshot up to a version, and read the changelogs after it."""
        before: list[Version] = [version]
        is_read = False
        while before:
            each = before.pop()
            if self._folder.has(snapshot_name(each)):
                return self._opened(snapshot_name(each))
            name = changelog_name(each)
            content = self._folder.read(name)
            self._newest_first.append((name, content))
            if not is_read:  # the newest changelog names all earlier ones
                before.extend(self._decoded(name, content).before)
                is_read = True
                first = before[0][0] if before else each[0]
        if first != 1:
            raise FileNotFoundError(f"{self._folder.shown}: the snapshot before version {first}")
        return None

    def _opened(self, name: str) -> Any:
        """Open the database of a snapshot; its tables are linked or copied into a temporary folder."""
        try:
            from rocksdict import AccessType, Options, Rdict  # noqa: PLC0415 - an optional package
        except ImportError:
            raise ConfigurationError(
                "reading the state without Spark needs rocksdict; run: pip install 'statefun[state]'"
            ) from None
        try:
            snapshot = Snapshot.decode(self._folder.read(name))
        except ValueError as error:
            raise self._damaged(name, error) from error
        database = Path(
            self._open.enter_context(tempfile.TemporaryDirectory(prefix="statefun-state-"))
        )
        for file, content in snapshot.files.items():
            (database / file).write_bytes(content)
        tables = self._folder.child(TABLES)
        for file, stored in snapshot.tables:
            if not tables.has(stored):
                raise FileNotFoundError(f"{tables.shown}/{stored}")
            if tables.is_local:
                (database / file).symlink_to(f"{tables.location}/{stored}")
            else:
                (database / file).write_bytes(tables.read(stored))
        try:
            opened = Rdict(
                str(database), Options(raw_mode=True), access_type=AccessType.read_only()
            )
        except Exception as error:
            if any(not tables.has(stored) for _, stored in snapshot.tables):
                raise FileNotFoundError(f"{tables.shown}: {error}") from error
            raise self._damaged(name, error) from error
        self._open.callback(opened.close)
        return opened

    def _decoded(self, name: str, content: bytes) -> Changelog:
        try:
            return Changelog.decode(content)
        except ValueError as error:
            raise self._damaged(name, error) from error

    def _changes(self, name: str, changelog: Changelog) -> dict[bytes, bytes | None]:
        try:
            return changelog.changes
        except ValueError as error:
            raise self._damaged(name, error) from error

    def _key(self, row: bytes) -> bytes:
        try:
            return grouping_key(row)
        except ValueError as error:
            raise self._damaged("", error) from error

    def _state(self, name: str, row: bytes | None) -> bytes | None:
        try:
            return None if row is None else state_of(row)
        except ValueError as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: Exception) -> CheckpointError:
        return damaged(self._checkpoint, f"{self._path}/{name}".rstrip("/"), error)
