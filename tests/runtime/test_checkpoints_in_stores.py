# SPDX-License-Identifier: Apache-2.0
"""Applications whose checkpoints are in an S3-compatible store."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import KafkaHarness, run, wait
from object_store import ObjectStore
from store_proxy import Fault, Request, store_proxy

from statefun import (
    Address,
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    ValueSpec,
)
from statefun.cli import main
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.settings import Settings
from statefun.sdk.errors import CheckpointError

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def counting(out: str) -> StatefulFunctions:
    """Return functions: one counts the messages of an address, and a second one the counts."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/count", specs=[ValueSpec("seen", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        ctx.send(Address("test.fns", "publish", "all"), f"{ctx.address.id}={ctx.storage.seen}")

    @functions.bind("test.fns/publish", specs=[ValueSpec("seen", IntType)])
    def publish(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        text = f"{message.as_string()} {ctx.storage.seen}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=text))

    return functions


@pytest.mark.long(minutes=1)
@pytest.mark.parametrize("semantic", ["at-least-once", "exactly-once"])
def test_an_application_goes_on_in_a_store(
    kafka: KafkaHarness, store: Folder, semantic: str
) -> None:
    """State, messages between functions and records are those of a local checkpoint, after each restart."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]}, semantic=semantic)
    for number in range(3):
        kafka.send(users, [("ada", b"a"), ("bob", b"b")])
        run(module, counting(out), store.location)
        published = {record.value.split()[0] for record in kafka.receive(out)}
        assert published == {f"{n}={c}" for n in ("ada", "bob") for c in range(1, number + 2)}

    numbers = [int(record.value.split()[1]) for record in kafka.receive(out)]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]
    log = CommitLog(store)
    assert len({log.author(batch) for batch in log.committed()}) == 3
    assert Outbox(store).batches() == []


@pytest.mark.long(minutes=0.5)
def test_a_rescaling_that_was_killed_is_finished(
    kafka: KafkaHarness, store: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start, and a rescaling to another number, name the command; then the application goes on, with all states."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module, log = kafka.module({users: ["test.fns/count"]}), CommitLog(store)
    kafka.send(users, [("ada", b"a"), ("bob", b"b")])
    run(module, counting(out), store.location, state_partitions=2)

    def rescale(partitions: int) -> tuple[int, str]:
        code = main(["rescale", store.location, "--state-partitions", str(partitions)])
        said = capsys.readouterr()
        return code, said.out + said.err

    code, said = rescale(3)
    assert (code, log.state_partitions(log.newest())) == (0, 3), said
    store.child("commits").remove(str(log.newest()))  # the last step

    how = "to 3 partitions was interrupted; to finish it: statefun rescale"
    with pytest.raises(CheckpointError, match=how):
        run(module, counting(out), store.location)
    for partitions in (2, 4):
        code, said = rescale(partitions)
        assert code == 1
        assert how in said
    code, said = rescale(3)
    assert (code, log.planned()) == (0, log.newest()), said
    kafka.send(users, [("ada", b"a"), ("bob", b"b")])
    run(module, counting(out), store.location)

    published = sorted(record.value.split()[0] for record in kafka.receive(out))
    assert published == ["ada=1", "ada=2", "bob=1", "bob=2"]
    assert log.state_partitions(log.newest()) == 3


def test_a_store_that_refuses_states_is_one_sentence(
    kafka: KafkaHarness, store_server: ObjectStore, tmp_path: Path
) -> None:
    """The error of a task, which Hadoop's classes describe, names the file and what the store has answered."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]})
    kafka.send(users, [("ada", b"a")])
    folder = f"{tmp_path.parent.name}/{tmp_path.name}"

    def refused(request: Request) -> Fault | None:
        is_state = request.method == "PUT" and ".changelog" in request.path
        return Fault(403, "AccessDenied") if is_state else None

    with store_proxy(store_server.port) as proxy:
        proxy.fault = refused
        with pytest.raises(CheckpointError) as ended:
            run(module, counting(out), store_server.location(folder, port=proxy.port))

    text = str(ended.value)
    assert text.startswith("[SF600] Spark could not read or write checkpoint s3a://")
    assert f"AccessDeniedException: {folder}/state/" in text
    assert "Status Code: 403" in text
    assert "\n" not in text


@pytest.mark.long(minutes=0.5)
def test_a_second_driver_is_refused(kafka: KafkaHarness, store: Folder) -> None:
    """While an application renews its lease, no other one begins; when it ends, the other one goes on at once."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]})
    kafka.send(users, [("ada", b"a")])
    settings = Settings.resolve({}, None, checkpoint=store.location)
    first = Application(parse_module(module), counting(out), settings)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(first.run)
        try:
            wait(lambda: bool(kafka.receive(out)))
            with pytest.raises(CheckpointError, match="is in use by process"):
                run(module, counting(out), store.location)
        finally:
            first.stop()
        with pytest.raises(KeyboardInterrupt):
            running.result()

    kafka.send(users, [("ada", b"a")])
    run(module, counting(out), store.location)

    assert [record.value for record in kafka.receive(out)] == ["ada=1 1", "ada=2 2"]


def test_a_run_publishes_nothing_of_a_batch_that_another_run_has_committed(
    kafka: KafkaHarness, store: Folder
) -> None:
    """The driver that commits a batch first wins: the effects of the other one are never released."""
    users, out = kafka.topic("users"), kafka.topic("out")
    module = kafka.module({users: ["test.fns/count"]})
    functions = StatefulFunctions()

    @functions.bind("test.fns/count")
    def count(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value="of the overtaken run"))

    kafka.send(users, [("ada", b"a")])
    other = store.child("commits")
    commit = {"nextBatchWatermarkMs": 0, "statefunRun": "another"}

    settings = Settings.resolve({}, None, checkpoint=store.location, checkpoint_lock="none")
    application = Application(parse_module(module), functions, settings)
    original = Outbox.stage

    def stage(self: Outbox, manifest: object) -> None:
        original(self, manifest)  # type: ignore[arg-type] # passed on
        assert other.create("0", f"v2\n{json.dumps(commit)}".encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox, "stage", stage)
        with pytest.raises(CheckpointError, match="another driver"):
            application.run()

    assert kafka.receive(out) == []
    assert CommitLog(store).author(0) == "another"
    assert Outbox(store).manifest(0) is None
