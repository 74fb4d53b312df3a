# SPDX-License-Identifier: Apache-2.0
"""The names and forms of the files of a RocksDB state store in checkpoint format 2, besides its changelogs.

Based on ``RocksDBFileManager.scala``, ``RocksDBCheckpointMetadata``, ``CommitLog.scala`` and ``StateStoreConf.scala`` of
Spark 4.2.0. The state after micro-batch N is version N + 1 of each partition's store. For each partition,
``commits/N`` has the id of the task whose version is valid. The task's files in ``state/0/<partition>`` are
``<version>_<id>.changelog`` and, if that version has a snapshot, ``<version>_<id>.zip``. The archive has the small
files of a RocksDB database, and a file ``metadata`` with the names of the database's tables in the folder ``SSTs``.
Snapshots share these tables.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import attrs

from statefun.runtime.spark_internals.changelogs import Version

TABLES = "SSTs"
"""The folder of a partition with the tables of its snapshots."""
OPERATOR = "0"
"""The number of the only operator with state, as the name of a folder."""
_METADATA = "metadata"
_READABLE = {
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
}
"""Settings that decide about the form of the files, with the values that this package reads."""


def states_folder() -> str:
    """Return the path in a checkpoint of the folder with the partitions of the state."""
    return f"state/{OPERATOR}"


def partition_folder(partition: int) -> str:
    """Return the path in a checkpoint of the folder with the files of one partition of the state."""
    return f"{states_folder()}/{partition}"


def partitions_in(names: Iterable[str]) -> list[int]:
    """Return the numbers of the partitions that have files, given the names in :func:`states_folder`."""
    return [int(name) for name in names if name.isdecimal()]


def state_version(batch: int) -> int:
    """Return the number of the version of the state after a micro-batch."""
    return batch + 1


def changelog_name(version: Version) -> str:
    """Return the name of the file with the changes from the previous version to this one."""
    return f"{version[0]}_{version[1]}.changelog"


def snapshot_name(version: Version) -> str:
    """Return the name of the file with the snapshot of a version."""
    return f"{version[0]}_{version[1]}.zip"


def ids_of_commit(content: bytes) -> list[str]:
    """Return, for each partition, the id of its version of the state, from the content of a file ``commits/N``.

    Raises:
        ValueError: if the file does not have the ids.
    """
    try:
        stores = json.loads(content.decode().split("\n")[1])["stateUniqueIds"][OPERATOR]
        return [str(ids[0]) for ids in stores]
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"it does not name the versions of the state ({error!r})") from error


def commit_with_ids(content: bytes, ids: Sequence[str]) -> bytes:
    """Return the content of a file ``commits/N`` in which ``ids`` replace the ids of the partitions' versions.

    Raises:
        ValueError: if the file does not have such ids.
    """
    ids_of_commit(content)
    version, line = content.decode().split("\n")
    commit = json.loads(line)
    commit["stateUniqueIds"][OPERATOR] = [[id_] for id_ in ids]
    return f"{version}\n{json.dumps(commit)}".encode()


def unreadable_setting(conf: Mapping[str, Any]) -> str | None:
    """Return a setting, as ``key=value``, because of which the state cannot be read; None if there is none.

    Args:
        conf: the settings that ``offsets/N`` has stored.
    """
    for key, value in _READABLE.items():
        if conf.get(key, value) != value:
            return f"{key}={conf[key]}"
    return None


@attrs.frozen
class Snapshot:
    """A snapshot of one partition of the state: a database of RocksDB without its tables."""

    files: Mapping[str, bytes] = attrs.field(repr=False)
    """The content of the database's small files, by their names."""
    tables: Sequence[tuple[str, str]]
    """The name of each table in the database, and its name in the folder ``SSTs``."""

    @classmethod
    def decode(cls, content: bytes) -> Snapshot:
        """Decode the content of a snapshot's archive.

        Raises:
            ValueError: if it is damaged or in another form.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                files = {name: archive.read(name) for name in archive.namelist()}
            metadata = json.loads(files.pop(_METADATA).decode().split("\n", 1)[1])
            tables = [
                (str(each["localFileName"]), str(each["dfsSstFileName"]))
                for each in metadata["sstFiles"]
            ]
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise ValueError(f"its archive is damaged: {error}") from error
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"its list of tables is malformed: {error!r}") from error
        if metadata.get("logFiles") or metadata.get("columnFamilyMapping"):
            raise ValueError("it has logs or column families, which statefun's state never has")
        for name in (*files, *(name for pair in tables for name in pair)):
            if PurePath(name).name != name or name in {"", ".", ".."}:
                raise ValueError(f"it has a file with the name {name!r}")
        return cls(files, tables)
