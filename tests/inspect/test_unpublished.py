# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.cli import main
from statefun.engine.effects import EffectRows
from statefun.engine.sinks import EgressRecord
from statefun.inspect.unpublished import skip
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.lock import unlocked
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.checkpoint.skips import read_skips, write_skips
from statefun.runtime.egress.lane import Lane, LaneBatch
from statefun.runtime.egress.marker import Marker
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream
from statefun.sdk.errors import CheckpointError, ConfigurationError

EVIL = "\x1b[2J\nkey"
HOLDER = """\
import fcntl
import sys

with open(sys.argv[1], "a+") as file:
    lock = fcntl.flock if sys.argv[1].endswith("driver.lock") else fcntl.lockf
    lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.write("4711")
    file.flush()
    print("held", flush=True)
    sys.stdin.readline()
"""
"""Holds a checkpoint as a driver or its JVM does."""


def stage(
    folder: Folder,
    batch: int,
    *shares: tuple[int, Sequence[str]],
    lanes: int = 1,
    egress: str = "t/out",
) -> None:
    """Stage a batch: values by state partition."""
    segments = []
    for number, (partition, values) in enumerate(shares):
        rows = EffectRows()
        for value in values:
            headers = [("h", b"\xff"), ("none", None)]
            rows.append(EgressRecord("topic", EVIL.encode(), value.encode(), headers))
        content, file = arrow_stream(rows.take(), EGRESS_SCHEMA), f"{number}.arrow"
        Outbox(folder).batch_folder(batch).write(file, content)
        stream = effect_stream(content, len(values), file)
        segments.append(Segment(partition=partition, egress={egress: stream}))
    Outbox(folder).stage(Manifest(batch=batch, query_id="q", segments=segments, lanes=lanes))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a checkpoint: batch 1 is published, 2 and 3 are not, and 4 is not committed."""
    folder = Folder.at(tmp_path / "checkpoint")
    folder.write("metadata", b'{"id": "q"}')
    for batch in range(1, 5):
        stage(folder, batch, (0, ["a", "b"]), (1, ["c"]), (0, ["d"]), lanes=2)
    Outbox(folder).mark_published(1)
    folder.child("commits").write("3", b"v1\n{}")
    return folder


def test_unpublished_records_are_listed(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """There is a row for each lane, with its first record; keys are escaped for the terminal."""
    skip(folder, 2, "t/out", [1], Path(f"{folder.location}.saved"))

    assert main(["outbox", "list", folder.location]) == 0

    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["batch", "state", "egress", "lane", "records", "skipped", "bytes", "first:", "topic", "key", "bytes"],
        ["2", "committed", "t/out", "0", "3", "1", "84", "topic", r"\x1b[2J\nkey", "28"],
        ["2", "committed", "t/out", "1", "1", "0", "28", "topic", r"\x1b[2J\nkey", "28"],
        ["3", "committed", "t/out", "0", "3", "0", "84", "topic", r"\x1b[2J\nkey", "28"],
        ["3", "committed", "t/out", "1", "1", "0", "28", "topic", r"\x1b[2J\nkey", "28"],
        ["4", "not", "committed", "t/out", "0", "3", "0", "84", "topic", r"\x1b[2J\nkey", "28"],
        ["4", "not", "committed", "t/out", "1", "1", "0", "28", "topic", r"\x1b[2J\nkey", "28"],
    ]  # fmt: skip
    assert last.startswith(f"3 batches with records to publish in {folder.location}; an applicat")

    assert main(["outbox", "list", "--json", folder.location]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert [[*each.values()] for each in documents][:2] == [
        [2, True, "t/out", 0, 3, 1, 84],
        [2, True, "t/out", 1, 1, 0, 28],
    ]


def test_records_are_listed_with_their_numbers(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The numbers count over all lanes of an egress; ``skip`` takes the same numbers."""
    skip(folder, 2, "t/out", [2], Path(f"{folder.location}.saved"))

    assert main(["outbox", "list", "--records", folder.location]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:5]]
    assert [(line[3], line[4], line[5] == "skipped") for line in lines] == [
        ("0", "0", False),
        ("0", "1", False),
        ("1", "2", True),
        ("0", "3", False),
    ]


def test_listing_needs_no_lock_and_omits_deleted_batches(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running application may delete a batch after its manifest was read, and before a file."""
    opened = Outbox.open

    def delete_first(outbox: Outbox, batch: int, stream: object) -> object:
        if batch == 2:
            outbox.remove(2)
        return opened(outbox, batch, stream)  # type: ignore[arg-type] # as it is called

    monkeypatch.setattr(Outbox, "open", delete_first)

    with held(folder, "driver.lock"):
        assert main(["outbox", "list", folder.location]) == 0

    assert capsys.readouterr().out.splitlines()[-1].startswith("2 batches with records")


def test_a_damaged_file_is_named(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of the outbox that cannot be read is an error with the path of the file."""
    Path(folder.location, "outbox/2/1.arrow").write_bytes(b"")

    assert main(["outbox", "list", folder.location]) == 1

    assert "outbox/2/1.arrow is damaged" in capsys.readouterr().err


def test_skipped_records_are_kept_in_a_file(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only this user may read the file; a second call adds to the skipped records."""
    for number in ("3", "2"):
        command = ["outbox", "skip", folder.location, "--batch", "2", "--egress", "t/out"]
        assert main([*command, "--record", number, "--yes"]) == 0
    printed = capsys.readouterr().out

    files = sorted(Path(folder.location).parent.glob("checkpoint.skipped-batch-2-*.jsonl"))
    lines = [json.loads(file.read_text("utf-8")) for file in files]
    assert [(line["record"], base64.b64decode(line["value"])) for line in lines] == [
        (3, b"d"),
        (2, b"c"),
    ]
    assert base64.b64decode(lines[0]["key"]).decode() == EVIL
    assert lines[0]["headers"] == [["h", "/w=="], ["none", None]]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert str(files[0]) in printed
    assert read_skips(folder, 2) == {"t/out": {2, 3}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--batch", "2"],
            "the command would remove 4 records of batch 2 for egress t/out; add --yes",
        ),
        (["--batch", "1", "--yes"], "batch 1 has no records that wait for egress t/out"),
        (["--batch", "9", "--yes"], "batch 9 has no records that wait for egress t/out"),
        (
            ["--batch", "2", "--egress", "t/no", "--yes"],
            "batch 2 has no records that wait for egress t/no",
        ),
        (
            ["--batch", "4", "--yes"],
            "batch 4 is not committed: the next start runs the batch again",
        ),
        (
            ["--batch", "2", "--record", "0", "4"],
            "there is no record 4; the records have the numbers 0 to 3",
        ),
        (["--batch", "3", "--record", "1", "--yes"], "all of these records were removed already"),
        (
            ["--batch", "2", "--yes", "--save", "/"],
            "the file for the removed records, /, cannot be created",
        ),
    ],
)
def test_a_wrong_selection_of_records_is_an_error(
    folder: Folder, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    """The error names the wrong part of the selection, and no record is skipped."""
    skip(folder, 3, "t/out", [1], Path(f"{folder.location}.saved"))
    before = [read_skips(folder, batch) for batch in range(5)]

    command = ["outbox", "skip", folder.location, "--egress", "t/out", *arguments]
    assert main(command) == 1

    assert expected in capsys.readouterr().err
    assert [read_skips(folder, batch) for batch in range(5)] == before


def held(folder: Folder, lock: str) -> _Held:
    """Let another process hold one of a checkpoint's locks."""
    return _Held(Path(folder.location, lock))


@attrs.define
class _Held:
    """A process that holds a lock."""

    lock: Path
    process: subprocess.Popen[str] | None = None

    def __enter__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, self.lock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        with self.process as process:
            process.kill()


@pytest.mark.parametrize(
    ("lock", "expected"),
    [("driver.lock", "is in use by process 4711"), ("jvm.lock", "is in use by Spark's JVM of an")],
)
def test_nothing_is_skipped_under_an_application(
    folder: Folder, capsys: pytest.CaptureFixture[str], lock: str, expected: str
) -> None:
    """A driver holds a lock, and so does a JVM that has outlived its driver."""
    command = ["outbox", "skip", folder.location, "--batch", "2", "--egress", "t/out", "--yes"]

    with held(folder, lock):
        assert main(command) == 1
    err = capsys.readouterr().err

    assert expected in err
    assert read_skips(folder, 2) == {}
    assert list(Path(folder.location).parent.glob("*.jsonl")) == []
    assert main(command) == 0


def test_a_run_without_a_lock_may_go_on(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    """Such a run is not visible: the user has to confirm with --no-lock that it has ended."""
    command = ["outbox", "skip", folder.location, "--batch", "2", "--egress", "t/out", "--yes"]
    with unlocked(folder):
        with held(folder, "driver.lock"):
            pass
        assert main(command) == 1
        assert "was used by a run with checkpoint-lock=none" in capsys.readouterr().err
        assert read_skips(folder, 2) == {}
        assert main([*command, "--record", "0", "--no-lock"]) == 0
        assert main(command) == 1
    assert main(command) == 0


def test_records_that_cannot_be_saved_are_not_skipped(folder: Folder, tmp_path: Path) -> None:
    """A damaged file of the outbox prevents it, and so does an existing file to save to."""
    saved = tmp_path / "saved"
    Path(folder.location, "outbox/2/1.arrow").write_bytes(b"")

    with pytest.raises(CheckpointError, match="is damaged"):
        skip(folder, 2, "t/out", None, saved)
    assert not saved.exists()
    saved.write_text("mine")
    with pytest.raises(ConfigurationError, match="saved, cannot be created"):
        skip(folder, 2, "t/out", [0], saved)

    assert saved.read_text() == "mine"
    assert read_skips(folder, 2) == {}


def test_other_file_systems_have_no_lock(capsys: pytest.CaptureFixture[str]) -> None:
    """The user has to confirm with --no-lock that no application runs, and give --save."""
    command = ["outbox", "skip", "mock:///checkpoint", "--batch", "2", "--egress", "t/out", "--yes"]

    assert main(command) == 1
    without = capsys.readouterr().err
    assert main([*command, "--no-lock"]) == 1

    assert "no application runs with it, then add --no-lock, and --save" in without
    assert "add --no-lock, and --save with a local file" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="batch 2 has no records that wait"):
        skip(Folder.at("mock:///c"), 2, "t/out", None, Path("no"), has_lock=False)


def test_there_may_be_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped path is an error, and not an empty outbox; the folder is not created."""
    for arguments in (["list"], ["skip", "--batch", "1", "--egress", "t/out", "--yes"]):
        assert main(["outbox", *arguments, str(tmp_path / "no")]) == 1
    err = capsys.readouterr().err

    assert f"there is no checkpoint at {tmp_path / 'no'}" in err
    assert not (tmp_path / "no").exists()


def test_damaged_skips_are_an_error() -> None:
    """A file of skips without numbers of records, or a truncated one, does not count as empty."""
    with tempfile.TemporaryDirectory() as root:
        folder = Folder.at(root)
        folder.write("ingresses.json", b"statefun ")
        write_skips(folder, 2, {"t/out": frozenset({1, 2, 7})})
        file = Path(root, "outbox/2/skipped")
        content = file.read_bytes()

        assert read_skips(folder, 2) == {"t/out": {1, 2, 7}}
        for end in range(len(content)):
            file.write_bytes(content[:end])
            with pytest.raises(CheckpointError, match="outbox/2/skipped is damaged"):
                read_skips(folder, 2)


@attrs.define
class Memory:
    """A cluster in memory, which can be made to fail."""

    values: list[str]
    marker: Marker | None = None
    breaks_at: int | None = None

    def open(self) -> Marker | None:
        """Return the marker of the last records."""
        return self.marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Store the records and the marker, both or neither."""
        if self.breaks_at is not None and marker.records > self.breaks_at:
            raise CheckpointError("broken off")
        self.values += [(record.value or b"").decode() for record in records]
        self.marker = marker

    def close(self) -> None:
        """Do nothing: the cluster has no connection."""


def publish(folder: Folder, clusters: Sequence[Memory], chunk: int) -> bool:
    """Publish batch 0 as a new run; return whether all of it is published."""
    staged = Outbox(folder).staged(0)
    assert staged is not None
    is_done = True
    for number, cluster in enumerate(clusters):
        connect: Callable[[], Memory] = partial(lambda memory: memory, cluster)
        lane = Lane("egress", "run", folder, connect, pytest.fail, chunk_records=chunk)
        try:
            lane.publish(LaneBatch.of(staged, "t/out", number))
        except CheckpointError:
            is_done = False
    return is_done


@given(
    partitions=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=6),
    lanes=st.integers(1, 3),
    chunks=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    breaks=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    data=st.data(),
)
def test_only_what_was_skipped_is_missing(
    partitions: list[tuple[int, int]],
    lanes: int,
    chunks: tuple[int, int],
    breaks: list[int],
    data: st.DataObject,
) -> None:
    """All other records are published once, wherever publishing stopped, for all chunk sizes."""
    with tempfile.TemporaryDirectory() as root:
        folder = Folder.at(root)
        folder.child("commits").write("0", b"v1\n{}")
        starts = [sum(count for _, count in partitions[:at]) for at in range(len(partitions))]
        shares = [
            (partition, [f"{number}" for number in range(start, start + count)])
            for (partition, count), start in zip(partitions, starts, strict=True)
        ]
        stage(
            folder, 0, *((partition, values) for partition, values in shares if values), lanes=lanes
        )
        total = sum(count for _, count in partitions)
        skipped = data.draw(st.frozensets(st.integers(0, max(total - 1, 0)), max_size=total))
        clusters = [Memory([], breaks_at=each) for each in breaks[:lanes]]

        publish(folder, clusters, chunks[0])
        before = {value for cluster in clusters for value in cluster.values}
        for cluster in clusters:
            cluster.breaks_at = None
        write_skips(folder, 0, {"t/out": skipped})
        assert publish(folder, clusters, chunks[1])

        for number, cluster in enumerate(clusters):
            expected = [
                value
                for partition, values in shares
                for value in values
                if partition % lanes == number and (value in before or int(value) not in skipped)
            ]
            assert cluster.values == expected


def test_a_place_that_is_no_checkpoint_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of the file system is printed without a stack trace."""
    file = tmp_path / "notes.txt"
    file.write_text("")

    assert main(["outbox", "list", str(file)]) == 1

    assert f"checkpoint {file} cannot be used: " in capsys.readouterr().err
