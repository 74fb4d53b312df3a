# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.filesystem import Folder
from statefun.runtime.outbox import MANIFEST, Outbox
from statefun.sdk.errors import CheckpointError

BATCHES = st.integers(0, 12)


class OutboxMachine(RuleBasedStateMachine):
    """Any sequence of operations on real files does what it does to a dictionary."""

    @initialize()
    def start(self) -> None:
        """Begin with nothing: no folder, no batch."""
        self.root = Path(tempfile.mkdtemp())
        self.outbox = Outbox(Folder.at(self.root / "check point"))
        self.batches: dict[int, list[bytes] | None] = {}
        self.attempts = 0

    def teardown(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.root)

    @rule(batch=BATCHES, contents=st.lists(st.tuples(st.binary(), st.booleans()), max_size=4))
    def stage(self, batch: int, contents: list[tuple[bytes, bool]]) -> None:
        """Stage a batch, some segments inline, some as files, over whatever was there."""
        segments = []
        for content, is_file in contents:
            if is_file:
                name = self._write_segment(batch, content)
                segments.append(Segment(partition=1, file=name))
            else:
                segments.append(Segment(partition=1, content=content))
        self.outbox.stage(batch, segments, query_id="query", run_id="run")
        self.batches[batch] = [content for content, _ in contents]

    @rule(batch=BATCHES, content=st.binary())
    def fail_before_manifest(self, batch: int, content: bytes) -> None:
        """Let a task write its file, and the driver die before it writes a manifest."""
        self._write_segment(batch, content)
        self.batches.setdefault(batch, None)

    def _write_segment(self, batch: int, content: bytes) -> str:
        self.attempts += 1
        name = f"1-{self.attempts}.arrow"
        self.outbox.batch_folder(batch).write(name, content)
        return name

    @rule(batch=BATCHES)
    def remove(self, batch: int) -> None:
        """Remove a batch, whether or not it is there."""
        self.outbox.remove(batch)
        self.batches.pop(batch, None)

    @rule(newest=st.integers(-1, 12))
    def recover(self, newest: int) -> None:
        """Start again: what will run again goes, and so does what failed attempts left."""
        self.batches = {
            batch: contents
            for batch, contents in self.batches.items()
            if batch <= newest and contents is not None
        }

        assert self.outbox.recover(newest) == sorted(self.batches)
        assert names_in(self.root / "check point") == sorted(map(str, self.batches))

    @rule()
    def restart(self) -> None:
        """Look at the same files from a new driver."""
        self.outbox = Outbox(Folder.at(self.root / "check point"))

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        """Batches, manifests and contents are those of the model."""
        for batch in range(13):
            contents = self.batches.get(batch)
            manifest = self.outbox.manifest(batch)
            assert (manifest is None) == (contents is None)
            if manifest is not None:
                read = [file.read() for file in self.outbox.open_segments(manifest)]
                assert read == contents


TestOutboxModel = OutboxMachine.TestCase
TestOutboxModel.settings = settings(stateful_step_count=25, deadline=None)


def names_in(checkpoint: Path) -> list[str]:
    """List what is in the outbox of a checkpoint."""
    return Folder.at(checkpoint).child("outbox").names()


def outbox_at(checkpoint: Path) -> Outbox:
    """Return the outbox of a checkpoint."""
    return Outbox(Folder.at(checkpoint))


def test_a_manifest_says_whose_effects_it_holds(checkpoint: Path) -> None:
    """Batch, checkpoint, run and segments are those that were staged, in order."""
    segments = [
        Segment(partition=2, content=b"", egress_records=0),
        Segment(partition=1, file="1-7.arrow", egress_records=9),
    ]

    outbox_at(checkpoint).stage(7, segments, query_id="the query", run_id="the run")

    assert outbox_at(checkpoint).manifest(7) == Manifest(
        batch=7, query_id="the query", run_id="the run", segments=segments
    )
    assert [path.name for path in (checkpoint / "outbox" / "7").iterdir()] == [MANIFEST]


def test_segments_are_opened_one_after_the_other(checkpoint: Path) -> None:
    """A batch of many large segments needs one open file at a time."""
    outbox = outbox_at(checkpoint)
    for name in ("one", "two"):
        outbox.batch_folder(0).write(name, name.encode())
    segments = [Segment(file="one"), Segment(content=b"inline"), Segment(file="two")]
    outbox.stage(0, segments, query_id="", run_id="")
    manifest = outbox.manifest(0)
    assert manifest is not None

    files: list[BinaryIO] = []
    contents = []
    for file in outbox.open_segments(manifest):
        assert all(former.closed for former in files[::2])
        files.append(file)
        contents.append(file.read())

    assert contents == [b"one", b"inline", b"two"]
    assert files[2].closed


def test_files_of_failed_attempts_are_not_in_the_batch(checkpoint: Path) -> None:
    """What a zombie has written beside the winners is not read, and goes with the batch."""
    outbox = outbox_at(checkpoint)
    outbox.batch_folder(3).write("1-1.arrow", b"zombie")
    outbox.batch_folder(3).write("1-2.arrow", b"winner")
    outbox.stage(3, [Segment(file="1-2.arrow")], query_id="", run_id="")
    manifest = outbox.manifest(3)
    assert manifest is not None

    contents = [file.read() for file in outbox.open_segments(manifest)]
    outbox.remove(3)

    assert contents == [b"winner"]
    assert outbox.batch_folder(3).names() == []


def test_a_crash_while_a_batch_is_removed_leaves_it_published(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest goes first; the rest is found, and can be removed, later."""
    outbox = outbox_at(checkpoint)
    outbox.batch_folder(3).write("1-1.arrow", b"content")
    outbox.stage(3, [Segment(file="1-1.arrow")], query_id="", run_id="")

    def crash(_folder: Folder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove_all", crash)
        with pytest.raises(KeyboardInterrupt):
            outbox.remove(3)

    assert outbox.manifest(3) is None
    assert outbox.recover(3) == []
    assert names_in(checkpoint) == []


def test_a_segment_file_that_is_gone_is_an_error(checkpoint: Path) -> None:
    """A batch is not published in part without a word."""
    outbox = outbox_at(checkpoint)
    outbox.stage(3, [Segment(file="1-1.arrow")], query_id="", run_id="")
    manifest = outbox.manifest(3)
    assert manifest is not None

    with pytest.raises(FileNotFoundError):
        list(outbox.open_segments(manifest))


def test_a_damaged_manifest_is_named(checkpoint: Path) -> None:
    """The error names the file and what to do."""
    outbox = outbox_at(checkpoint)
    outbox.batch_folder(3).write(MANIFEST, b"\xff")

    with pytest.raises(CheckpointError) as caught:
        outbox.manifest(3)

    assert caught.value.message.startswith(f"{checkpoint}/outbox/3/manifest is damaged (")
    assert caught.value.message.endswith("); restore the checkpoint from a copy")


def test_what_is_no_batch_is_left_alone(checkpoint: Path) -> None:
    """Only folders with a batch's number are batches."""
    outbox = outbox_at(checkpoint)
    for name in ("README", "7.tmp", "-1"):
        Folder.at(checkpoint / "outbox").write(name, b"")

    outbox.stage(9, [], query_id="", run_id="")
    outbox.stage(10, [], query_id="", run_id="")

    assert outbox.recover(10) == [9, 10]
    assert outbox.recover(-1) == []
    assert Folder.at(checkpoint / "outbox").names() == ["-1", "7.tmp", "README"]
