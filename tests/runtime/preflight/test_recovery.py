# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import CheckpointError, Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.engine.wheel import PendingBuckets
from statefun.protocol.runtime_pb2 import Manifest
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.preflight.recovery import Succession, check_logs
from statefun.runtime.release.publisher import Publisher

METADATA = '{"id": "3f1b"}'
OFFSETS = 'v1\n{}\n{"batch": -1, "tick": -1}'


def files(*, committed: int, planned: int) -> dict[str, str]:
    """Return the logs of a checkpoint, up to a committed and a planned batch."""
    logs = {f"offsets/{number}": OFFSETS for number in range(planned + 1)}
    logs |= {f"commits/{number}": "v1\n{}" for number in range(committed + 1)}
    return {"metadata": METADATA, **logs} if planned >= 0 else logs


def written(checkpoint: Path, contents: dict[str, str]) -> Folder:
    """Write files of a checkpoint."""
    for name, content in contents.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Folder.at(checkpoint)


@pytest.mark.parametrize(("committed", "planned"), [(-1, -1), (-1, 0), (0, 0), (6, 7), (7, 7)])
def test_logs_are_consistent_after_a_crash_at_any_point(
    checkpoint: Path, committed: int, planned: int
) -> None:
    """This includes the first batch, planned and staged, when nothing is committed."""
    folder = written(checkpoint, files(committed=committed, planned=planned))
    if planned >= 0:
        Outbox(folder).stage(Manifest(batch=planned))
    if committed >= 0:
        Outbox(folder).mark_published(committed)
        TimerLog(folder).add(0, {1}, PendingBuckets())

    check_logs(folder)


@pytest.mark.parametrize(
    ("committed", "planned", "reason"),
    [
        (-1, 7, "'commits' is none, but the newest batch in its folder 'offsets' is 7"),
        (5, 7, "'commits' is 5, but the newest batch in its folder 'offsets' is 7"),
        (7, 6, "'commits' is 7, but the newest batch in its folder 'offsets' is 6"),
        (7, -1, "'commits' is 7, but the newest batch in its folder 'offsets' is none"),
    ],
)
def test_logs_that_lack_batches_are_refused(
    checkpoint: Path, committed: int, planned: int, reason: str
) -> None:
    """The error lists the existing files and a remedy."""
    folder = written(checkpoint, files(committed=committed, planned=planned))

    with pytest.raises(CheckpointError) as caught:
        check_logs(folder)

    assert caught.value.message == (
        f"checkpoint {checkpoint} has lost files: the newest batch in its folder {reason}; nothing "
        "was changed: restore the checkpoint from a copy, or start with a new checkpoint"
    )


def test_an_outbox_that_is_ahead_of_the_logs_is_refused(checkpoint: Path) -> None:
    """A staged batch must have been planned, and a published batch must have been committed."""
    folder = written(checkpoint, files(committed=-1, planned=0))
    Outbox(folder).stage(Manifest(batch=0))
    Outbox(folder).mark_published(0)
    with pytest.raises(CheckpointError, match="batch 0 in its outbox is marked as published"):
        check_logs(folder)

    Outbox(folder).stage(Manifest(batch=1))
    with pytest.raises(CheckpointError, match="folder 'offsets' is 0, and its outbox has batch 1"):
        check_logs(folder)


def test_timers_without_commits_are_refused(checkpoint: Path) -> None:
    """Timer buckets are written into the log only after a batch is committed."""
    folder = written(checkpoint, files(committed=-1, planned=0))
    TimerLog(folder).add(0, {1}, PendingBuckets())

    with pytest.raises(
        CheckpointError, match="folder 'commits' is none, but its folder 'timers' is not"
    ):
        check_logs(folder)


def test_a_checkpoint_without_its_id_is_refused(checkpoint: Path) -> None:
    """With another id, the application would publish under other transactional names."""
    folder = written(checkpoint, files(committed=0, planned=0))
    folder.remove("metadata")

    with pytest.raises(CheckpointError, match="but its file metadata is missing"):
        check_logs(folder)


@pytest.mark.parametrize(
    "content", ["", "v", "v1", "v1\n", "v1\n{", "v3\n{}", "v1\n[]", "v1\n{}\n"]
)
def test_a_torn_commit_is_refused(checkpoint: Path, content: str) -> None:
    """The newest commit determines the state."""
    folder = written(checkpoint, {**files(committed=4, planned=4), "commits/4": content})

    with pytest.raises(CheckpointError, match=r"commits/4 does not have the form in which Spark"):
        check_logs(folder)


def test_batches_of_a_run_follow_each_other() -> None:
    """The first batch comes after the newest commit at the start."""
    succession = Succession(committed=4)

    assert [succession.check(batch) for batch in (5, 6, 7)] == [True, False, False]
    with pytest.raises(CheckpointError, match=r"has committed batch 8 to this checkpoint"):
        succession.check(9)
    with pytest.raises(CheckpointError, match=r"has committed batch 0 to this checkpoint"):
        Succession(committed=-1).check(1)


def telling(topic: str) -> StatefulFunctions:
    """Return a function that passes its messages on, except empty ones."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/tell")
    def tell(ctx: Context, message: Message) -> None:
        if message.raw_value():
            ctx.send(KafkaEgressMessage("test/out", topic=topic, value=message.raw_value()))

    return functions


@pytest.mark.broker
@pytest.mark.spark
def test_a_batch_that_a_replaced_driver_commits_late_is_not_lost(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JVM was held up before the commit: the next driver finds out, and the one after goes on.

    Two drivers run one after the other; of the first one, all is undone that comes after staging.
    """
    users, out = kafka.topic("users"), kafka.topic("out")
    module, functions = kafka.module({users: ["test.fns/tell"]}), telling(out)
    kafka.send(users, [("Ada", "a")])
    run(module, functions, checkpoint)
    kafka.send(users, [("Ada", "b")])
    with monkeypatch.context() as patch:  # it never gets as far as publishing
        patch.setattr(Publisher, "_run", lambda _self: None)
        patch.setattr(Publisher, "drain", lambda *_: None)
        run(module, functions, checkpoint)
    commit = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    late = commit.read_bytes()
    commit.unlink()
    kafka.send(users, [("Ada", "c")])

    drain = Publisher.drain

    def drain_meanwhile(self: Publisher, newest: int, stopping: threading.Event) -> None:
        drain(self, newest, stopping)
        commit.write_bytes(late)

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "drain", drain_meanwhile)
        with pytest.raises(
            CheckpointError, match="another driver, or the JVM of an ended driver, has"
        ):
            run(module, functions, checkpoint)
    before = [record.value for record in kafka.receive(out)]
    run(module, functions, checkpoint)

    assert before == ["a"]
    assert [record.value for record in kafka.receive(out)] == ["a", "b", "c"]


@pytest.mark.broker
@pytest.mark.spark
def test_a_commit_in_the_midst_of_a_batch_is_noticed(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver commits a batch that this one has staged."""
    users, out = kafka.topic("users"), kafka.topic("out")
    kafka.send(users, [("Ada", "a")])
    add = Publisher.add

    def add_meanwhile(self: Publisher, batch: int, *, has_effects: bool) -> None:
        add(self, batch, has_effects=has_effects)
        written(checkpoint, {f"commits/{batch}": "v1\n{}"})

    monkeypatch.setattr(Publisher, "add", add_meanwhile)

    with pytest.raises(CheckpointError, match=r"could not write its logs in checkpoint .*: anoth"):
        run(kafka.module({users: ["test.fns/tell"]}), telling(out), checkpoint)


@pytest.mark.broker
@pytest.mark.spark
def test_a_staged_batch_is_removed_if_its_repetition_sends_nothing(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Effects of an attempt that was not committed do not outlive the next attempt."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/tell"]})
    kafka.send(users, [("Ada", "a")])

    def fail(_self: Publisher, _batch: int, **_named: object) -> None:
        raise CheckpointError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "add", fail)
        with pytest.raises(CheckpointError, match="not now"):
            run(module, telling(out), checkpoint)
    quiet = StatefulFunctions()
    quiet.register("test.fns/tell", lambda ctx, message: None)
    staged = Outbox(Folder.at(checkpoint)).batches()
    run(module, quiet, checkpoint)

    assert staged == [0]
    assert kafka.receive(out) == []
    assert Outbox(Folder.at(checkpoint)).batches() == []


@pytest.mark.broker
@pytest.mark.spark
def test_a_checkpoint_that_has_lost_its_commits_is_left_as_it_is(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start deletes nothing of its outbox, so that it can be repaired."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module, functions = kafka.module({users: ["test.fns/tell"]}), telling(out)
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "_run", lambda _self: None)
        patch.setattr(Publisher, "drain", lambda *_: None)
        for value in ("a", "b"):
            kafka.send(users, [("Ada", value)])
            run(module, functions, checkpoint)
    shutil.move(checkpoint / "commits", checkpoint.parent / "lost")

    with pytest.raises(
        CheckpointError, match="has lost files: the newest batch in its folder 'commits' is"
    ):
        run(module, functions, checkpoint)
    shutil.move(checkpoint.parent / "lost", checkpoint / "commits")
    run(module, functions, checkpoint)

    assert [record.value for record in kafka.receive(out)] == ["a", "b"]
