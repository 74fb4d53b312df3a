# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from harness import KafkaHarness, run
from harness import running as running_application
from object_store import ObjectStore, object_store
from small_checkpoint import small_checkpoint, write_batch

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.cli import main
from statefun.inspect.snapshot_files import SnapshotFacts
from statefun.inspect.snapshots import restore_snapshot, take_snapshot
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.former_queries import (
    former_queries,
)
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.settings import Settings
from statefun.sdk.errors import CheckpointError, ConfigurationError


def functions(topic: str) -> StatefulFunctions:
    """Return a function that passes messages on, at once and after a second, to one that counts them."""
    registry = StatefulFunctions()

    @registry.bind("t.fns/first")
    def first(ctx: Context, message: Message) -> None:
        counted = Message("t.fns/counter", ctx.address.id, message.typed_value)
        ctx.send(counted)
        ctx.send_after(timedelta(seconds=1), counted)

    @registry.bind("t.fns/counter", [ValueSpec("count", IntType)])
    def count(ctx: Context, _message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        value = f"{ctx.address.id} {ctx.storage.count}"
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key="k", value=value))

    return registry


def declared(kafka: KafkaHarness, topic: str) -> str:
    """Return the module file of the application: it reads ``topic``, and writes exactly once."""
    return kafka.module({topic: ["t.fns/first"]}, semantic="exactly-once", value_type="test/text")


def written(kafka: KafkaHarness, topic: str) -> list[str]:
    """Return the values of all records of a topic, sorted."""
    return sorted(record.value for record in kafka.receive(topic))


@contextmanager
def running(kafka: KafkaHarness, topic: str, out: str, checkpoint: Path) -> Iterator[None]:
    """Run the application during the block."""
    settings = Settings.resolve({}, None, checkpoint=checkpoint)
    application = Application(parse_module(declared(kafka, topic)), functions(out), settings)
    with running_application(application):
        yield


def rest(
    kafka: KafkaHarness, topic: str, checkpoint: Path, outs: tuple[str, str], everything: set[str]
) -> list[str]:
    """Run the application until two topics have ``everything``; it writes to the second, all of which is returned."""
    with running(kafka, topic, outs[1], checkpoint):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if everything <= {value for out in outs for value in written(kafka, out)}:
                break
            time.sleep(0.2)
        time.sleep(1)  # if messages come twice
    return written(kafka, outs[1])


@pytest.mark.spark
@pytest.mark.broker
def test_snapshots_of_a_running_application_lose_and_repeat_nothing(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """Each message is counted once, whichever snapshot the application goes on from, and whatever was under way."""
    topic, out, keys = kafka.topic("in"), kafka.topic("out"), ["Ada", "Alan", "Grace"]
    taken = []
    with running(kafka, topic, out, checkpoint):
        for number in range(4):
            kafka.send(topic, [(key, f"{number}") for key in keys for _ in range(5)])
            while CommitLog(Folder.at(checkpoint)).newest() < 0:
                time.sleep(0.1)
            time.sleep(0.3 * number)
            target = tmp_path / f"snapshot-{min(number, 2)}"  # the last one replaces the third
            taken.append(take_snapshot(Folder.at(checkpoint), Folder.at(target)))
    batches = [snapshot.batch for snapshot in taken]
    kafka.send(topic, [(key, "last") for key in keys])  # so that the counts of all others show
    everything = {f"{key} {count + 1}" for key in keys for count in range((4 * 5 + 1) * 2)}

    for number in (0, 2):
        copy, later = tmp_path / f"copy-{number}", kafka.topic(f"later-{number}")
        snapshot = str(tmp_path / f"snapshot-{number}")
        assert main(["restore", "--records-may-repeat", snapshot, str(copy)]) == 0
        records = rest(kafka, topic, copy, (out, later), everything)
        # What was made before the snapshot is in the first topic alone, also if it was published after it.
        assert set(written(kafka, out)) | set(records) == everything
        assert len(records) == len(set(records))

    assert batches == sorted(batches)


@pytest.mark.spark
@pytest.mark.broker
def test_a_person_decides_whether_records_may_repeat(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the option, a start with an exactly-once egress is refused if it has published further batches.

    ``statefun validate`` says so before the start.
    """
    topic, out, snapshot = kafka.topic("in"), kafka.topic("out"), tmp_path / "snapshot"
    kafka.send(topic, [("Ada", "one")])
    run(declared(kafka, topic), functions(out), checkpoint)
    assert main(["snapshot", str(checkpoint), str(snapshot)]) == 0
    kafka.send(topic, [("Ada", "two")])
    run(declared(kafka, topic), functions(out), checkpoint)

    assert main(["restore", str(snapshot), str(tmp_path / "refused")]) == 0
    with pytest.raises(
        CheckpointError, match=r"older copy .*statefun restore --records-may-repeat"
    ):
        run(declared(kafka, topic), functions(out), tmp_path / "refused")
    module = tmp_path / "module.yaml"
    module.write_text(declared(kafka, topic))
    validate = ["validate", str(module), "--connect", "--checkpoint"]
    assert main([*validate, str(tmp_path / "refused")]) == 1
    assert main([*validate, str(checkpoint)]) == 0
    assert main(["restore", "--records-may-repeat", str(snapshot), str(tmp_path / "c")]) == 0
    assert main([*validate, str(tmp_path / "c")]) == 0
    former = former_queries(Folder.at(tmp_path / "c"))
    run(declared(kafka, topic), functions(out), tmp_path / "c")

    facts = SnapshotFacts.read(Folder.at(snapshot))
    assert (former, former_queries(Folder.at(tmp_path / "c"))) == ([facts.query_id], [])
    batch = facts.batch
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{snapshot} has the checkpoint as of micro-batch {batch}"
    assert said[1].startswith(f"{tmp_path / 'refused'} goes on after micro-batch {batch} (20")
    assert any(
        line.startswith("error: ") and "is published, but the newest batch of" in line
        for line in said
    )
    assert said[-2].startswith(
        "records that exactly-once egresses have published since then may be"
    )
    first, *others = written(kafka, out)
    assert first == "Ada 1"
    assert {"Ada 2"} <= set(others)


@pytest.fixture
def stored(checkpoint: Path) -> Folder:
    """Return a checkpoint with a committed micro-batch and its states."""
    return small_checkpoint(checkpoint)


def restored(snapshot: Folder, place: Path) -> Folder:
    """Return a checkpoint that is made from a snapshot."""
    copy = Folder.at(place)
    restore_snapshot(snapshot, copy)
    return copy


def test_a_later_snapshot_replaces_an_earlier_one(stored: Folder, tmp_path: Path) -> None:
    """Files that the checkpoint has deleted are deleted there, too; locks are not copied."""
    target = Folder.at(tmp_path / "target")
    stored.write("driver.lock", b"")
    stored.child("lease").write("epoch-1", b"")
    take_snapshot(stored, target)
    write_batch(stored, 1)
    stored.child("state").child("0").child("0").remove("1_3f1b.changelog")

    assert take_snapshot(stored, target).batch == 1
    assert target.child("state").sizes() == {"0/0/2_3f1b.changelog": 7}
    assert sum(name.endswith(".zip") for name in target.names()) == 1
    copy = restored(target, tmp_path / "copy")
    assert set(copy.sizes()) == set(stored.sizes()) - {"driver.lock", "lease/epoch-1"}


def test_a_batch_that_is_not_committed_is_not_copied(stored: Folder, tmp_path: Path) -> None:
    """Its states, offsets and effects are not part of the snapshot."""
    target = Folder.at(tmp_path / "target")
    stored.child("offsets").write("1", b'v1\n{}\n{"batch":0,"tick":-1}')
    stored.child("state").child("0").child("0").write("2_3f1b.changelog", b"changes")
    stored.child("outbox").child("1").write("manifest", b"")

    take_snapshot(stored, target)

    assert set(restored(target, tmp_path / "copy").sizes()) == {
        "metadata",
        "ingresses.json",
        "offsets/0",
        "commits/0",
        "state/0/0/1_3f1b.changelog",
    }


def test_a_restored_checkpoint_knows_all_earlier_ones_of_its_snapshot(
    stored: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each may have left transactions open, which the next one ends."""
    snapshot = Folder.at(tmp_path / "snapshot")
    take_snapshot(stored, snapshot)
    copies = [Folder.at(tmp_path / f"copy-{number}") for number in range(2)]
    restore = ["restore", "--records-may-repeat", snapshot.location]
    ids = ["query"]
    for copy in copies:
        assert main([*restore, copy.location]) == 0
        assert former_queries(copy) == [*ids[1:], ids[0]]
        ids.append(CommitLog(copy).query_id())
    take_snapshot(stored, snapshot)  # replaces the snapshot
    assert main([*restore, str(tmp_path / "last")]) == 0
    assert former_queries(Folder.at(tmp_path / "last")) == [*ids[1:], ids[0]]
    assert "cannot be written" not in capsys.readouterr().out

    assert len({*ids}) == 3


def test_a_snapshot_on_a_read_only_disk_can_be_restored(
    stored: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it cannot note is printed."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o777)
        take_snapshot(stored, Folder.at(place / "snapshot"))
        for path in [place / "snapshot", *(place / "snapshot").rglob("*/")]:
            path.chmod(0o555)
        with other_user():
            code = main(
                ["restore", "--records-may-repeat", str(place / "snapshot"), str(place / "copy")]
            )

        assert (code, former_queries(Folder.at(place / "copy"))) == (0, ["query"])
        assert f"{place / 'snapshot'} cannot be written" in capsys.readouterr().out


@contextmanager
def other_user() -> Iterator[None]:
    """During the block, be somebody else than root, for whom rights count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_other_files_are_not_overwritten(stored: Folder, tmp_path: Path) -> None:
    """Neither by a snapshot nor by a restored checkpoint."""
    target, other = Folder.at(tmp_path / "target"), Folder.at(tmp_path / "other")
    take_snapshot(stored, target)
    other.write("file", b"a user's")

    with pytest.raises(ConfigurationError, match="has other files than a snapshot"):
        take_snapshot(stored, other)
    with pytest.raises(ConfigurationError, match="has files: give an empty folder"):
        restore_snapshot(target, other)
    stored.write("metadata", b'{"id":"another"}')
    with pytest.raises(ConfigurationError, match="has other files than a snapshot"):
        take_snapshot(stored, target)


def test_there_must_be_something_to_copy(checkpoint: Path, tmp_path: Path) -> None:
    """A folder without the files of a query is no checkpoint."""
    folder = Folder.at(checkpoint)
    IngressOrder([]).write(folder)

    with pytest.raises(ConfigurationError, match="there is no checkpoint at "):
        take_snapshot(folder, Folder.at(tmp_path / "target"))


def test_a_copy_is_not_made_inside_of_its_original(stored: Folder, tmp_path: Path) -> None:
    """However the folder is named: the next snapshot would delete a checkpoint inside of it, as files that it does not know."""
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    target, name = Folder.at(tmp_path / "target"), Path(stored.location).name
    take_snapshot(stored, target)

    for place in (name, f"{name}/copy", f"other/../{name}/copy", f"link/{name}/copy"):
        with pytest.raises(ConfigurationError, match="is inside of the checkpoint"):
            take_snapshot(stored, Folder.at(tmp_path / place))
    for place in ("target", "target/app", "other/../target/app", "link/target/app"):
        with pytest.raises(ConfigurationError, match="is inside of the snapshot"):
            restore_snapshot(target, Folder.at(tmp_path / place))


def test_a_copy_may_have_the_path_of_its_original_in_another_store(
    stored: Folder, tmp_path: Path, store_server: ObjectStore
) -> None:
    """Buckets of one name at two endpoints are two buckets."""
    path = f"{tmp_path.parent.name}/{tmp_path.name}"
    with object_store(tmp_path) as other:
        target, copy = store_server.folder(path), other.folder(path)
        take_snapshot(stored, target)
        restore_snapshot(target, copy)

        assert set(copy.sizes()) == set(stored.sizes())
    with pytest.raises(ConfigurationError, match="is inside of the snapshot"):
        restore_snapshot(target, store_server.folder(f"{path}/copy"))


def test_a_restored_checkpoint_and_a_snapshot_are_private(stored: Folder, tmp_path: Path) -> None:
    """Like each new local checkpoint, they are for their user alone: they have the state unencrypted."""
    snapshot, copy = tmp_path / "snapshot", tmp_path / "copy"
    take_snapshot(stored, Folder.at(snapshot))
    restore_snapshot(Folder.at(snapshot), Folder.at(copy))

    assert [oct(each.stat().st_mode & 0o777) for each in (snapshot, copy)] == [oct(0o700)] * 2
