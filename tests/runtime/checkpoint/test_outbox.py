# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import write_framed
from statefun.runtime.checkpoint.outbox import MANIFEST, Leftovers, Outbox, effect_stream
from statefun.runtime.spark_internals.log_files import RUN_OF_COMMIT
from statefun.sdk.errors import CheckpointError

BATCHES = st.integers(0, 12)


@attrs.define
class Batch:
    """The model of a batch."""

    contents: list[bytes] | None = None
    """Of its streams; None before there is a manifest."""
    published: bool = False


class OutboxMachine(RuleBasedStateMachine):
    """Any sequence of operations has the same result on real files as on a dictionary."""

    @initialize()
    def start(self) -> None:
        """Begin with nothing: no folder, no batch."""
        self.root = Path(tempfile.mkdtemp())
        self.outbox = Outbox(Folder.at(self.root / "check point"))
        self.batches: dict[int, Batch] = {}
        self.attempts = 0

    def teardown(self) -> None:
        """Delete the files."""
        shutil.rmtree(self.root)

    @rule(batch=BATCHES, contents=st.lists(st.tuples(st.binary(), st.booleans()), max_size=4))
    def stage(self, batch: int, contents: list[tuple[bytes, bool]]) -> None:
        """Stage a batch, some streams inline, some as files, over any earlier attempt."""
        segments = []
        for content, is_file in contents:
            if is_file:
                stream = effect_stream(content, 1, self._write_file(batch, content))
            else:
                stream = effect_stream(content, 1)
            segments.append(Segment(partition=1, egress={"e": stream}))
        self.outbox.stage(Manifest(batch=batch, segments=segments))
        self.batches.setdefault(batch, Batch()).contents = [content for content, _ in contents]

    @rule(batch=BATCHES, content=st.binary())
    def fail_before_manifest(self, batch: int, content: bytes) -> None:
        """Let a task write its file, and the driver die before it writes a manifest."""
        self._write_file(batch, content)
        self.batches.setdefault(batch, Batch())

    def _write_file(self, batch: int, content: bytes) -> str:
        self.attempts += 1
        name = f"1-{self.attempts}.arrow"
        self.outbox.batch_folder(batch).write(name, content)
        return name

    @rule(batch=BATCHES)
    def publish(self, batch: int) -> None:
        """Take note that a batch is published."""
        self.outbox.mark_published(batch)
        self.batches.setdefault(batch, Batch()).published = True

    @rule(batch=BATCHES)
    def remove(self, batch: int) -> None:
        """Remove a batch, whether or not it is there."""
        self.outbox.remove(batch)
        self.batches.pop(batch, None)

    @rule(newest=st.integers(-1, 12))
    def recover(self, newest: int) -> None:
        """Start again: files of failed attempts go, and batches that will run again stay."""
        self.batches = {
            number: batch
            for number, batch in self.batches.items()
            if number > newest or batch.contents is not None
        }

        leftovers = self.outbox.recover(newest)

        left = sorted(number for number in self.batches if number <= newest)
        assert leftovers.unpublished == [n for n in left if not self.batches[n].published]
        assert leftovers.undelivered == [n for n in left if self.batches[n].published]

    @rule()
    def restart(self) -> None:
        """Look at the same files from a new driver."""
        self.outbox = Outbox(Folder.at(self.root / "check point"))

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        """Batches, manifests and contents are equal to the model's."""
        assert self.outbox.batches() == sorted(self.batches)
        for number in range(13):
            contents = self.batches.get(number, Batch()).contents
            manifest = self.outbox.manifest(number)
            assert (manifest is None) == (contents is None)
            if manifest is not None:
                streams = [segment.egress["e"] for segment in manifest.segments]
                assert [self.outbox.open(number, s).read() for s in streams] == contents


TestOutboxModel = OutboxMachine.TestCase
TestOutboxModel.settings = settings(stateful_step_count=25, deadline=None)


@pytest.fixture
def outbox(checkpoint: Path) -> Outbox:
    """Return the outbox of the test's checkpoint."""
    return Outbox(Folder.at(checkpoint))


def test_a_manifest_identifies_the_batch_of_its_effects(checkpoint: Path) -> None:
    """Batch, checkpoint, run and segments are the staged ones, in order."""
    segments = [
        Segment(partition=2, egress={"e": effect_stream(b"", 0)}),
        Segment(partition=1, messages=effect_stream(b"", 9, "1-7.arrow")),
    ]

    Outbox(Folder.at(checkpoint)).stage(
        Manifest(batch=7, query_id="the query", run_id="the run", segments=segments)
    )

    assert Outbox(Folder.at(checkpoint)).manifest(7) == Manifest(
        batch=7, query_id="the query", run_id="the run", segments=segments
    )
    assert [path.name for path in (checkpoint / "outbox" / "7").iterdir()] == [MANIFEST]


def test_files_of_failed_attempts_are_not_in_the_batch(outbox: Outbox) -> None:
    """Files of a failed attempt are not read, and are deleted with the batch."""
    outbox.batch_folder(3).write("1-1.arrow", b"zombie")
    outbox.batch_folder(3).write("1-2.arrow", b"winner")
    outbox.stage(
        Manifest(
            batch=3, segments=[Segment(egress={"e": effect_stream(b"winner", 1, "1-2.arrow")})]
        )
    )
    manifest = outbox.manifest(3)
    assert manifest is not None

    contents = [outbox.open(3, segment.egress["e"]).read() for segment in manifest.segments]
    outbox.remove(3)

    assert contents == [b"winner"]
    assert outbox.batches() == []


def test_a_batch_counts_as_removed_after_a_crash_during_its_removal(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is deleted first; the next start finds and deletes the other files."""
    outbox.batch_folder(3).write("1-1.arrow", b"content")
    outbox.stage(
        Manifest(batch=3, segments=[Segment(egress={"e": effect_stream(b"", 0, "1-1.arrow")})])
    )

    def crash(_folder: Folder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove_all", crash)
        with pytest.raises(KeyboardInterrupt):
            outbox.remove(3)

    assert outbox.manifest(3) is None
    assert outbox.batches() == [3]
    assert outbox.recover(3) == Leftovers([], [])
    assert outbox.batches() == []


def test_a_missing_file_of_effects_is_an_error(outbox: Outbox) -> None:
    """A batch is never published in part silently."""
    with pytest.raises(
        CheckpointError, match=r"3/1-1\.arrow, which has effects of batch 3, is missing"
    ):
        outbox.open(3, effect_stream(b"", 0, "1-1.arrow"))


def test_a_damaged_manifest_is_named(outbox: Outbox, checkpoint: Path) -> None:
    """The error names the file and what to do."""
    outbox.batch_folder(3).write(MANIFEST, b"\xff")

    with pytest.raises(CheckpointError) as caught:
        outbox.manifest(3)

    assert caught.value.message.startswith(f"{checkpoint}/outbox/3/manifest is damaged (")
    assert caught.value.message.endswith("); restore the checkpoint from a copy")


def test_other_folders_in_the_outbox_are_ignored(outbox: Outbox, checkpoint: Path) -> None:
    """Only folders with numbers are batches; they are listed in order."""
    for name in ("README", "7.tmp", "-1"):
        Folder.at(checkpoint / "outbox").write(name, b"")
    for batch in (10, 9):
        outbox.stage(Manifest(batch=batch))

    assert outbox.recover(10) == Leftovers([9, 10], [])
    for batch in (9, 10):
        outbox.remove(batch)
    assert Folder.at(checkpoint / "outbox").names() == ["-1", "7.tmp", "README"]


def test_a_local_manifest_is_found_without_the_commit(
    outbox: Outbox, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a checkpoint that was copied from an object store has manifests that the commits name."""
    commit = f'v1\n{{"nextBatchWatermarkMs": 0, "{RUN_OF_COMMIT}": "the run"}}'
    (checkpoint / "commits").mkdir(parents=True)
    for batch, name in ((7, MANIFEST), (8, f"{MANIFEST}-the run")):
        (checkpoint / "commits" / str(batch)).write_text(commit)
        content = Manifest(batch=batch, query_id="the query").SerializeToString()
        write_framed(Folder.at(checkpoint), f"outbox/{batch}/{name}", content)
    reads: list[str] = []
    read = Folder.read

    def reading(self: Folder, name: str) -> bytes:
        reads.append(name)
        return read(self, name)

    monkeypatch.setattr(Folder, "read", reading)

    assert [outbox.manifest(batch) for batch in (7, 8)] == [
        Manifest(batch=batch, query_id="the query") for batch in (7, 8)
    ]
    assert "7" not in reads
    assert "8" in reads
