# SPDX-License-Identifier: Apache-2.0
"""The forms of the files of state stores: real files are read, and damaged ones are errors."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_checkpoint import CHECKPOINTS

from statefun.runtime.spark_internals.changelogs import Changelog
from statefun.runtime.spark_internals.lz4_blocks import decompressed
from statefun.runtime.spark_internals.store_files import (
    Snapshot,
    commit_with_ids,
    ids_of_commit,
    unreadable_setting,
)
from statefun.runtime.spark_internals.store_rows import (
    grouping_key,
    key_row,
    partition_of,
    state_of,
    state_row,
)

STORED = CHECKPOINTS / "format-1"
CHANGELOGS = sorted((STORED / "state").rglob("*.changelog"))
SECOND = CHANGELOGS[1].read_bytes()
HASHES = [142593372, 1485273170, 1398487324, 3617130019, 3225958963, 1971565129]
"""What Spark's function ``hash()`` gives for the keys of a test below, modulo 2^32."""


@pytest.mark.parametrize("file", CHANGELOGS, ids=lambda file: file.name[:1])
def test_changelogs_of_spark_are_read(file: Path) -> None:
    """Their checksums match, they name the versions before, and their rows have keys and states."""
    changelog = Changelog.decode(file.read_bytes())

    number = int(file.name.partition("_")[0])
    assert [version for version, _ in changelog.before] == list(range(1, number))
    for row, value in changelog.changes.items():
        assert key_row(grouping_key(row)) == row
        assert changelog.may_have(row)
        assert value is None or state_row(state_of(value)) == value


def test_a_commit_gets_other_ids() -> None:
    """Everything else in it stays; a commit without ids is an error."""
    content = b'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a"]]}}'

    changed = commit_with_ids(content, ["b", "c"])

    assert ids_of_commit(changed) == ["b", "c"]
    assert json.loads(changed.split(b"\n")[1])["nextBatchWatermarkMs"] == 7
    with pytest.raises(ValueError, match="does not name the versions"):
        commit_with_ids(b"v1\n{}", ["b"])


@given(st.integers(0, len(SECOND) - 1), st.integers(1, 255))
def test_a_changed_byte_of_a_changelog_is_found(place: int, change: int) -> None:
    """It is an error, or it is a part of the file that carries no content."""
    content = bytearray(SECOND)
    content[place] ^= change

    with contextlib.suppress(ValueError):
        assert Changelog.decode(bytes(content)).changes == Changelog.decode(SECOND).changes


@given(st.integers(0, len(SECOND) - 1))
def test_a_truncated_changelog_is_an_error(size: int) -> None:
    """So is one that goes on after its end."""
    with pytest.raises(ValueError, match="compressed content"):
        Changelog.decode(SECOND[:size])
    with pytest.raises(ValueError, match="goes on after its end"):
        Changelog.decode(SECOND + SECOND[: size + 1])


@given(st.binary(max_size=200))
def test_any_other_content_is_an_error(content: bytes) -> None:
    """Never another exception, and never a value."""
    for read in (decompressed, Changelog.decode, Snapshot.decode, ids_of_commit):
        with pytest.raises(ValueError, match=r"^"):
            read(content)


@given(st.binary(max_size=100))
def test_rows_are_read_or_are_errors(content: bytes) -> None:
    """A key is what it was made of; other bytes are an error or a row of the same form."""
    assert grouping_key(key_row(content)) == content
    for read in (grouping_key, state_of):
        with contextlib.suppress(ValueError):
            assert len(read(content)) <= len(content)


def test_partitions_are_those_of_spark() -> None:
    """Of keys of all lengths modulo four, with bytes above 127: as Spark's function hash() gives them."""
    keys = [b"", b"a", b"\xff", b"ab\xfe", b"Ada\0test.fns/account", bytes(range(250, 256))]

    assert [partition_of(key, 1 << 32) for key in keys] == HASHES


def test_commits_name_the_versions() -> None:
    """By partition; a commit without them is an error."""
    content = (STORED / "commits" / "1").read_bytes()

    assert [f"2_{id_}.changelog" for id_ in ids_of_commit(content)] == [CHANGELOGS[1].name]
    with pytest.raises(ValueError, match="does not name the versions"):
        ids_of_commit(b'v1\n{"nextBatchWatermarkMs":0}')


def test_other_forms_of_the_state_are_found_by_their_settings() -> None:
    """Those that the query has stored; a setting that is missing has its default."""
    conf = json.loads((STORED / "offsets" / "1").read_text().split("\n")[1])["conf"]
    codec = "spark.sql.streaming.stateStore.compression.codec"

    assert unreadable_setting(conf) is None
    assert unreadable_setting({}) is None
    assert unreadable_setting({**conf, codec: "zstd"}) == f"{codec}=zstd"
