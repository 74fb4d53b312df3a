# SPDX-License-Identifier: Apache-2.0
"""The state of a committed micro-batch, read without Spark: from a real application's checkpoint, and from models."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import state_application
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from rocksdict import Options, Rdict
from state_application import BATCHES, COUNTER, counts

from statefun import Address, CheckpointError, ConfigurationError
from statefun.cli import main
from statefun.engine.address_keys import address_key
from statefun.runtime.checkpoint.checkpoint_files import CheckpointFiles
from statefun.runtime.checkpoint.file_systems import files_of
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.session import open_session
from statefun.runtime.spark_internals.store_rows import key_row
from statefun.runtime.stored.committed_state import CommittedState, with_state
from statefun.runtime.stored.partition_state import PartitionState
from statefun.runtime.stored.stored_state import state_rows


@pytest.mark.long(minutes=0.9)
@pytest.mark.spark
def test_the_state_is_read_while_the_application_runs(read_while_running: Any) -> None:
    """Each reading has the state of one committed micro-batch, whatever is committed or deleted meanwhile."""
    seen = read_while_running.seen

    assert len({batch for batch, _ in seen}) > 1
    for batch, found in seen:
        assert found == counts(batch)


def read_counts(state: CommittedState) -> dict[str, int]:
    """Return the counts by id in a state."""
    return state_application.read_counts(state)[1]


@pytest.mark.spark
def test_every_batch_is_read_as_it_was(real: Path) -> None:
    """From snapshots and changelogs, each batch gives what the commands until then come to."""
    checkpoint = Folder.at(real)

    assert list(real.rglob("*.zip")), "the application has written snapshots"
    for batch in range(BATCHES):
        assert with_state(checkpoint, batch, read_counts) == counts(batch)
    assert with_state(checkpoint, None, lambda state: state.batch) == BATCHES - 1


@pytest.mark.spark
def test_single_addresses_are_found_in_their_partitions(real: Path) -> None:
    """Each address is found by its key, and an address without state is not."""
    expected = counts(BATCHES - 1)

    def found(state: CommittedState) -> dict[str, bytes | None]:
        ids = [f"c{number}" for number in range(50)]
        return {id_: state.get(address_key(Address(COUNTER, id_))) for id_ in ids}

    states = with_state(Folder.at(real), None, found)

    assert {id_ for id_, state in states.items() if state is not None} == expected.keys()


@pytest.mark.spark
def test_spark_reads_the_same(real: Path) -> None:
    """Spark's own reader returns the same keys and states, for any session's settings."""
    checkpoint = Folder.at(real)
    session = open_session(debug=False, state_partitions=None, kafka=False).newSession()

    for batch in (2, BATCHES - 1):
        rows = state_rows(session, checkpoint, batch).collect()
        ours = with_state(checkpoint, batch, dict)
        assert {bytes(row.target): bytes(row.state) for row in rows} == ours


@pytest.mark.spark
def test_a_rescaled_state_is_read(real: Path, tmp_path: Path) -> None:
    """Spark has put each address into the partition in which this package looks; earlier batches stay readable."""
    copy = tmp_path / "copy"
    shutil.copytree(real, copy)
    checkpoint, before = Folder.at(copy), with_state(Folder.at(real), None, dict)

    for number in (5, 1):
        assert main(["rescale", str(copy), "--state-partitions", f"{number}"]) == 0

        state = with_state(checkpoint, None, lambda state: {key: state.get(key) for key in before})
        assert state == before
        assert with_state(checkpoint, None, dict) == before
        assert with_state(checkpoint, BATCHES - 1, dict) == before
    session = open_session(debug=False, state_partitions=None, kafka=False).newSession()
    rows = state_rows(session, checkpoint, BATCHES + 1).collect()
    assert {bytes(row.target): bytes(row.state) for row in rows} == before


@pytest.mark.spark
def test_a_batch_that_is_gone_is_one_sentence(real: Path) -> None:
    """So is one that is not committed yet."""
    with pytest.raises(
        CheckpointError, match=r"batch 99 is not committed yet: .* the batches 0 to 13$"
    ):
        with_state(Folder.at(real), 99, read_counts)
    with pytest.raises(CheckpointError, match="batch -1 is gone"):
        with_state(Folder.at(real), -1, read_counts)


@pytest.mark.spark
def test_an_application_may_delete_files_while_they_are_read(real: Path, tmp_path: Path) -> None:
    """The reading begins again with a newer batch; without one, the lost file is named."""
    copy = tmp_path / "copy"
    shutil.copytree(real, copy)
    newest = copy / "commits" / str(BATCHES - 1)
    content = newest.read_bytes()
    newest.unlink()
    attempts: list[int] = []

    def read(state: CommittedState) -> dict[str, int]:
        attempts.append(state.batch)
        if len(attempts) == 1:
            newest.write_bytes(content)
            raise FileNotFoundError("a changelog")
        return read_counts(state)

    assert with_state(Folder.at(copy), None, read) == counts(BATCHES - 1)
    assert attempts == [BATCHES - 2, BATCHES - 1]
    for table in copy.rglob("*.sst"):
        table.unlink()
    with pytest.raises(CheckpointError, match=rf"state of batch {BATCHES - 1} in .* lacks a file"):
        with_state(Folder.at(copy), None, read_counts)


@pytest.mark.spark
@pytest.mark.parametrize("pattern", ["*.sst", "*.zip", "*.changelog"])
def test_damaged_files_are_named(real: Path, tmp_path: Path, pattern: str) -> None:
    """A changed byte in any of the files is an error, and never another state."""
    copy = tmp_path / "copy"
    shutil.copytree(real, copy)
    for file in (copy / "state").rglob(pattern):
        content = bytearray(file.read_bytes())
        # The middle of a small table is in blocks that are not read: its data comes first.
        content[20 if pattern == "*.sst" else len(content) // 2] ^= 0xFF
        file.write_bytes(content)

    with pytest.raises(CheckpointError, match=r"state/0/\d+.* is damaged"):
        with_state(Folder.at(copy), None, read_counts)


@pytest.mark.spark
def test_the_state_is_read_from_other_file_systems(
    real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that are not on a local file system are copied; the files are read through the folder alone."""
    root = "mock://bucket"

    def files_there(uri: str) -> tuple[CheckpointFiles, str]:
        return files_of(fs.LocalFileSystem()), f"{real}{uri.removeprefix(root)}"

    monkeypatch.setattr("statefun.runtime.checkpoint.file_systems.files_at", files_there)
    elsewhere = Folder.at(root)

    assert not elsewhere.is_local
    for batch in (3, BATCHES - 1):
        assert with_state(elsewhere, batch, read_counts) == counts(batch)


def test_folders_without_state_are_one_sentence(tmp_path: Path) -> None:
    """A folder without a checkpoint, one of another program, and one without a committed batch."""
    folder = Folder.at(tmp_path)
    with pytest.raises(ConfigurationError, match="there is no checkpoint at"):
        with_state(folder, None, read_counts)
    (tmp_path / "metadata").write_text('{"id": "query"}')
    with pytest.raises(ConfigurationError, match="was not made by statefun"):
        with_state(folder, None, read_counts)
    content = b'{"format": 1, "ingresses": []}'
    line = f"statefun ingresses.json {len(content)} {zlib.crc32(content):08x}\n".encode()
    (tmp_path / "ingresses.json").write_bytes(line + content)
    with pytest.raises(CheckpointError, match="is still empty"):
        with_state(folder, None, read_counts)


KEYS = st.binary(max_size=12)
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=40), max_size=8)


@given(
    versions=st.lists(CHANGES, min_size=1, max_size=6),
    snapshot=st.integers(0, 6),
    part=st.binary(max_size=2),
)
def test_a_partition_is_what_its_changes_come_to(
    tmp_path_factory: pytest.TempPathFactory,
    versions: list[dict[bytes, bytes | None]],
    snapshot: int,
    part: bytes,
) -> None:
    """For any changes and any version with a snapshot, what is read is what a dict has, also of some keys alone."""
    folder = tmp_path_factory.mktemp("model")
    model = write_store(folder, versions, snapshot)

    state = PartitionState(Folder.at(folder), 0, (len(versions), f"id{len(versions)}"))
    read = dict(state.containing(part))
    keys = {key for changes in versions for key in changes} | {b"other"}
    found = {key: state.get(key) for key in keys}
    state.close()
    shutil.rmtree(folder)

    assert read == {key: state for key, state in model.items() if part in key}
    assert found == {key: model.get(key) for key in keys}


def write_store(
    folder: Path, versions: list[dict[bytes, bytes | None]], snapshot: int
) -> dict[bytes, bytes]:
    """Write the files of a partition, in Spark's form; return its content.

    Args:
        folder: the folder of the checkpoint.
        versions: the changes of each version, from version 1 on.
        snapshot: the version that has a snapshot; none if there is no such version.
    """
    partition = folder / "state" / "0" / "0"
    partition.mkdir(parents=True)
    model: dict[bytes, bytes] = {}
    for number, changes in enumerate(versions, 1):
        for key, value in changes.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        before = [
            {"version": each, "checkpointUniqueId": f"id{each}"}
            for each in range(snapshot if 0 < snapshot < number else 1, number)
        ]
        (partition / f"{number}_id{number}.changelog").write_bytes(changelog(before, changes))
        if number == snapshot:
            (partition / f"{number}_id{number}.zip").write_bytes(database(partition, model))
    return model


def value_row(state: bytes) -> bytes:
    """Return the value of a state store for a state."""
    inner = key_row(state)[1:]
    return key_row(inner)


def changelog(before: object, changes: Mapping[bytes, bytes | None]) -> bytes:
    """Return the file of a changelog."""
    lineage = json.dumps(before).encode()
    parts = [b"\0\2v3", struct.pack(">H", len(lineage)), lineage]
    for key, value in changes.items():
        row = key_row(key)
        parts += [struct.pack(">i", len(row)), row]
        if value is None:
            parts.append(struct.pack(">i", -1))
        else:
            stored = value_row(value)
            parts += [struct.pack(">i", len(stored)), stored]
    return block_stream(b"".join([*parts, struct.pack(">i", -1)]))


def block_stream(content: bytes, size: int = 64) -> bytes:
    """Return content in the form of lz4-java, in blocks of a size."""
    codec = pa.Codec("lz4_raw")
    parts = []
    for at in range(0, len(content), size):
        block = content[at : at + size]
        packed = codec.compress(block, asbytes=True)
        method = 0x20 if len(packed) < len(block) else 0x10
        packed = packed if method == 0x20 else block
        check = xxhash.xxh32_intdigest(block, 0x9747B28C)
        head = struct.pack(
            "<8sBiiI", b"LZ4Block", method, len(packed), len(block), check & 0x0FFFFFFF
        )
        parts.append(head + packed)
    return b"".join([*parts, struct.pack("<8sBiiI", b"LZ4Block", 0x10, 0, 0, 0)])


def database(partition: Path, model: Mapping[bytes, bytes]) -> bytes:
    """Write the tables of a database; return the archive with its other files."""
    folder = partition / "database"
    opened = Rdict(str(folder), Options(raw_mode=True))
    for key, value in model.items():
        opened[key_row(key)] = value_row(value)
    opened.flush()
    opened.close()
    tables = partition / "SSTs"
    tables.mkdir(exist_ok=True)
    archive = io.BytesIO()
    named = []
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.iterdir()):
            if path.suffix == ".sst":
                named.append(
                    {
                        "localFileName": path.name,
                        "dfsSstFileName": f"{path.stem}-a.sst",
                        "sizeBytes": 1,
                    }
                )
                path.rename(tables / f"{path.stem}-a.sst")
            elif path.name.startswith(("CURRENT", "MANIFEST", "OPTIONS")):
                file.write(path, path.name)
        file.writestr("metadata", "v1\n" + json.dumps({"sstFiles": named, "numKeys": len(model)}))
    shutil.rmtree(folder)
    return archive.getvalue()
