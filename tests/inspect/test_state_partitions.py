# SPDX-License-Identifier: Apache-2.0
"""Applications whose state gets another number of partitions: between runs, after crashes, and killed meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from harness import KafkaHarness, run, running, wait
from local_servers import free_port, served
from obedient_system import System
from programs import Program, follow

from statefun import (
    Context,
    FunctionError,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
)
from statefun.cli import main
from statefun.dev import EmbeddedKafka
from statefun.dev.spark_application import FileClock
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import IngressOrder
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.settings import Settings
from statefun.runtime.stored.committed_state import with_state

FEW, MANY = 2, 5
SERVED = """
from statefun import *

@function("served.fns/counter", specs=[ValueSpec("count", IntType)])
def count(ctx, message):
    ctx.storage.count = (ctx.storage.count or 0) + 1
    ctx.send(message_builder("t.fns/printer", ctx.address.id, str_value=f"served {ctx.storage.count}"))
"""


ENDPOINT = """
---
kind: io.statefun.endpoints.v2/http
spec:
  functions: served.fns/*
  urlPathTemplate: http://127.0.0.1:{port}/
  transport: {{call: 1s}}
"""


def rescaled(checkpoint: Path, partitions: int) -> int:
    """Run the command; return its exit code."""
    return main(["rescale", str(checkpoint), "--state-partitions", str(partitions)])


def partitions(checkpoint: Path) -> int | None:
    """Return the number of partitions after the newest committed micro-batch."""
    log = CommitLog(Folder.at(checkpoint))
    return log.state_partitions(log.newest())


@attrs.define
class RescaledSystem(System):
    """An application whose state has another number of partitions in each step."""

    numbers: list[int] = attrs.Factory(lambda: [FEW])

    def step(
        self, roots: list[tuple[str, Program]], now: float = 0, **options: Any
    ) -> list[list[Any]]:
        """Rescale, and take a step, in which several lanes publish."""
        if self.checkpoint.exists():
            number = MANY if self.numbers[-1] == FEW else FEW
            assert rescaled(self.checkpoint, number) == 0
            self.numbers.append(number)
        return super().step(
            roots, now, state_partitions=self.numbers[-1], egress_lanes=3, **options
        )


@pytest.mark.long(minutes=0.8)
@pytest.mark.spark
@pytest.mark.broker
def test_random_programs_do_what_the_model_does_with_ever_other_partitions(
    kafka: KafkaHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """State, egress, order, delays, cancellations and expirations equal those of a sequential interpreter."""
    system = RescaledSystem(
        kafka,
        kafka.topic("in", partitions=2),
        kafka.topic("out"),
        tmp_path / "checkpoint",
        FileClock(tmp_path / "clock"),
    )

    commands = follow(system, 3, ["x", "y", "z"], depth=2, roots=20, steps=1, immediate=3)

    assert commands > 100
    assert len(system.numbers) == 6
    assert "has no effect" not in caplog.text


def counting(topic: str, *, fails: bool) -> StatefulFunctions:
    """Return a function that counts its messages, and fails on some of them."""
    made = StatefulFunctions()

    @made.bind("t.fns/counter", [ValueSpec("count", IntType)])
    def count(ctx: Context, message: Message) -> None:
        if fails and message.raw_value() == b"bad":
            raise ValueError("as it was told")
        ctx.storage.count = (ctx.storage.count or 0) + 1
        value = f"{ctx.address.id} {ctx.storage.count}"
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key="k", value=value))

    return made


@pytest.mark.spark
@pytest.mark.broker
def test_a_micro_batch_that_has_failed_is_planned_anew(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Its records are handled after the rescaling, and each message counts once."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/counter"]}, value_type="test/text")
    names = [f"id {number}" for number in range(40)]
    log = CommitLog(Folder.at(checkpoint))
    kafka.send(inputs, [(name, "good") for name in names])
    run(module, counting(out, fails=True), checkpoint, state_partitions=FEW)
    kafka.send(inputs, [(name, "bad") for name in names])
    with pytest.raises(FunctionError):
        run(module, counting(out, fails=True), checkpoint)
    assert log.planned() == log.newest() + 1

    assert rescaled(checkpoint, MANY) == 0
    assert log.planned() == log.newest()
    run(module, counting(out, fails=False), checkpoint)

    values = [record.value for record in kafka.receive(out)]
    assert sorted(values) == sorted(f"{name} {count}" for name in names for count in (1, 2))
    assert partitions(checkpoint) == MANY


def functions(topic: str) -> StatefulFunctions:
    """Return functions that pass messages on: at once, later, and to one elsewhere, which may be down."""
    made = StatefulFunctions()

    @made.bind("t.fns/first")
    def first(ctx: Context, message: Message) -> None:
        text = message.as_string()
        if text == "bad":
            raise ValueError("a bad record")
        ctx.send(Message("t.fns/printer", ctx.address.id, message.typed_value))
        ctx.send(Message("served.fns/counter", ctx.address.id, message.typed_value))
        later = Message("t.fns/printer", ctx.address.id, message.typed_value)
        ctx.send_after(timedelta(seconds=1), later)
        ctx.send_after(timedelta(days=1), later, text)
        ctx.cancel_delayed_message(text)

    @made.bind("t.fns/printer")
    def show(ctx: Context, message: Message) -> None:
        value = message.as_string()
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    return made


def modified(path: Path) -> int | None:
    """Return when a file was modified; None if there is no such file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def killed(checkpoint: Path, partitions: int, randomness: random.Random) -> None:
    """Rescale in a process, and kill it a moment after it has planned its micro-batch."""
    plan = checkpoint / "offsets" / f"{CommitLog(Folder.at(checkpoint)).newest() + 1}"
    former = modified(plan)  # of a rescaling that was killed
    command = [sys.executable, "-m", "statefun.cli", "rescale", str(checkpoint)]
    with subprocess.Popen([*command, "--state-partitions", str(partitions)]) as process:
        while process.poll() is None and modified(plan) in {None, former}:
            time.sleep(0.01)
        time.sleep(randomness.random() * 3)
        process.kill()
    with checkpoint_lock(Folder.at(checkpoint)):
        pass  # its JVM ends soon after it


@pytest.fixture
def egress_kafka() -> Iterator[KafkaHarness]:
    """Return a broker of the test's own, which it may pause while the application reads from the other one."""
    with EmbeddedKafka() as broker:
        yield KafkaHarness(broker, "egress")


def all_rows(checkpoint: Path) -> dict[bytes, bytes]:
    """Return the states of all addresses, reserved ones included."""
    return with_state(Folder.at(checkpoint), None, dict)


@pytest.mark.long(minutes=2)
@pytest.mark.spark
@pytest.mark.broker
def test_a_killed_rescaling_leaves_the_old_or_the_new_state(
    kafka: KafkaHarness, egress_kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """Unpublished records, timers, and messages that wait for an endpoint survive, and come once and in order."""
    inputs, port = kafka.topic("in"), free_port()
    out, letters = egress_kafka.topic("out"), egress_kafka.topic("letters")
    names = [f"id {number}" for number in range(30)]
    ingress = kafka.module({inputs: ["t.fns/first"]}).partition("---")[0]
    egress = egress_kafka.module({}, semantic="exactly-once", dead_letters=letters)
    module = f"{ingress}---{egress.partition('---')[2]}" + ENDPOINT.format(port=port)

    def send(texts: Sequence[str]) -> None:
        encode = StringType.serializer().serialize
        kafka.send(inputs, [(name, encode(text)) for text in texts for name in names])

    def turn() -> None:
        run(module, functions(out), checkpoint, egress_lanes=3, state_partitions=FEW)

    settings = Settings.resolve(
        {}, None, checkpoint=checkpoint, state_partitions=FEW, egress_lanes=3
    )
    application = Application(parse_module(module), functions(out), settings)
    log = CommitLog(Folder.at(checkpoint))
    with running(application):
        wait(lambda: log.newest() >= 0)
        egress_kafka.broker.pause()
        send(["0", "1", "bad"])
        wait(lambda: log.newest() >= 4)
    egress_kafka.broker.resume()
    before, randomness = all_rows(checkpoint), random.Random(5)
    assert Outbox(Folder.at(checkpoint)).batches()
    assert egress_kafka.receive(out) == []

    for _ in range(2):
        killed(checkpoint, MANY, randomness)
        assert partitions(checkpoint) in {FEW, MANY}
        assert all_rows(checkpoint) == before
    assert rescaled(checkpoint, MANY) == 0
    assert all_rows(checkpoint) == before
    send(["2"])
    turn()
    killed(checkpoint, FEW, randomness)
    turn()
    assert rescaled(checkpoint, FEW) == 0
    with served(tmp_path, port, SERVED):
        send(["3"])
        turn()

        def is_through() -> bool:
            turn()
            return len(egress_kafka.receive(out)) >= len(names) * 4 * 3

        wait(is_through)

    received = egress_kafka.receive(out)
    for name in names:
        values = [record.value for record in received if record.key == name]
        assert [value for value in values if "served" in value] == [
            f"served {n}" for n in (1, 2, 3, 4)
        ]
        assert Counter(values) == {
            **{f"served {n}": 1 for n in (1, 2, 3, 4)},
            **{f"{n}": 2 for n in range(4)},
        }
        firsts = [values.index(f"{n}") for n in range(4)]
        assert firsts == sorted(firsts)
    assert sorted(letter.key or "" for letter in egress_kafka.receive(letters)) == sorted(names)
    assert partitions(checkpoint) == FEW
    assert checkpoint.joinpath("state/0").is_dir()


def test_what_cannot_be_rescaled_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is no checkpoint, an empty checkpoint, one that is in use, and a number that is none."""
    fresh, used = tmp_path / "fresh", tmp_path / "used"
    for folder in (fresh, used):
        Folder.at(folder).write("metadata", b'{"id":"query"}')
        IngressOrder([]).write(Folder.at(folder))
    plan = b'v1\n{"conf":{"spark.sql.shuffle.partitions":"2"}}\n{"batch":-1,"tick":-1}'
    Folder.at(used).child("offsets").write("0", plan)
    Folder.at(used).child("commits").write("0", b"v2\n{}")
    said = []

    for location in ("mock://checkpoint", str(tmp_path / "none"), str(fresh)):
        assert main(["rescale", location, "--state-partitions", "4"]) == 1
        said.append(capsys.readouterr().err)
    with checkpoint_lock(Folder.at(used)):
        assert main(["rescale", str(used), "--state-partitions", "4"]) == 1
    said.append(capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["rescale", str(used), "--state-partitions", "0"])
    said.append(capsys.readouterr().err)
    assert main(["rescale", str(used), "--state-partitions", "2"]) == 0
    said.append(capsys.readouterr().out)

    expected = [
        "is neither on a local file system, in an S3-compatible store nor in HDFS, and cannot be locked: make sure",
        f"there is no checkpoint at {tmp_path / 'none'}",
        f"checkpoint {fresh} is still empty: no batch is committed yet",
        f"checkpoint {used} is in use by process",
        "argument --state-partitions: must be a whole number, at least 1, not '0'",
        f"the state in {used} is divided into 2 partitions already",
    ]
    for line, part in zip(said, expected, strict=True):
        assert part in line
