# SPDX-License-Identifier: Apache-2.0
"""Repairs of a real checkpoint: one more micro-batch without input, whatever is killed meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from harness import KafkaHarness, run
from stored_checkpoint import CHECKPOINTS, DELAY, MADE, StoppedClock, step

from statefun import (
    Address,
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    StringType,
    Type,
    ValueSpec,
)
from statefun.cli import main
from statefun.engine.address_keys import address_of
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.stored.committed_state import with_state

pytestmark = [pytest.mark.spark, pytest.mark.takes(minutes=0.5)]

ACCOUNT = "test.fns/account"
CHANGES = f"""
- address: {ACCOUNT}/Ada
  set: {{total: 500, note: repaired}}
- address: {ACCOUNT}/Bob
  new: true
  set: {{total: 7}}
"""
BEFORE = {("Ada", "total"): 2, ("Ada", "note"): "reminded"}
AFTER = {("Ada", "total"): 500, ("Ada", "note"): "repaired", ("Bob", "total"): 7}


@pytest.fixture
def stored(checkpoint: Path) -> Path:
    """Return a copy of the stored checkpoint; its last run has planned batch 3, and ended with an error."""
    shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", checkpoint)
    assert CommitLog(Folder.at(checkpoint)).planned() == 3
    return checkpoint


def values(checkpoint: Path) -> dict[tuple[str, str], object]:
    """Return the values of all accounts, by id and name."""
    found: dict[tuple[str, str], object] = {}
    types: dict[str, Type[Any]] = {IntType.typename: IntType, StringType.typename: StringType}
    for key, content in with_state(Folder.at(checkpoint), None, list):
        address: Address = address_of(key)
        if address.typename == ACCOUNT:
            for value in AddressState.FromString(content).values:
                decoded = types[value.typename].serializer().deserialize(value.value)
                found[address.id, value.name] = decoded
    return found


def test_a_repair_is_one_more_batch_without_input(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages and timers wait for the application, which goes on with the repaired values."""
    log, file = CommitLog(Folder.at(stored)), tmp_path / "changes.yaml"
    file.write_text(CHANGES)
    offsets = log.end_offsets(2)

    assert main(["state", "apply", str(file), "--checkpoint", str(stored)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "3 changes made in batch 3"

    assert values(stored) == AFTER
    assert (log.newest(), log.planned()) == (3, 3)
    ends = log.end_offsets(3)
    assert ends[:-1] == offsets[:-1]
    assert ends[-1] == {**(offsets[-1] or {}), "inboxes": {"repairs": 3}}
    delete = ["state", "delete", f"{ACCOUNT}/Bob", "--all", "--checkpoint", str(stored)]
    assert main(delete) == 0
    early = step(stored, ["remind", "pay"], StoppedClock(MADE + DELAY / 2))
    assert early.invocations == 1, "the payment that was not delivered"
    late = step(stored, ["remind", "pay", "pay"], StoppedClock(MADE + 2 * DELAY))
    assert late.invocations == 4, "two delayed messages, a command, and its payment"
    assert values(stored) == {("Ada", "total"): 500 + 10 + 100 + 1, ("Ada", "note"): "repaired"}
    step(stored, ["remind", "pay", "pay"], StoppedClock(MADE + timedelta(days=400)))
    assert values(stored) == {("Ada", "total"): 611}, "the note expires when it would have"
    capsys.readouterr()
    assert main(["state", "log", "--checkpoint", str(stored)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"4 changes by hand in {stored}"


def killed(checkpoint: Path, file: Path, is_time: Callable[[float], bool]) -> bool:
    """Run ``apply`` in processes of its own; kill them when ``is_time`` says so; return whether they were killed.

    Args:
        checkpoint: the checkpoint.
        file: the file with the changes.
        is_time: gets the seconds since the start.
    """
    command = [sys.executable, "-m", "statefun.cli", "state", "apply", str(file)]
    with (file.parent / "log").open("a") as out:
        process = subprocess.Popen(
            [*command, "--checkpoint", str(checkpoint)],
            stdout=out,
            stderr=out,
            start_new_session=True,  # with its JVM and workers
        )
    begin = time.monotonic()
    while process.poll() is None:
        if is_time(time.monotonic() - begin):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.001)
    return False


@pytest.mark.long(minutes=0.6)
def test_a_killed_repair_is_whole_or_not_there(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whenever the command is killed; the next one, or the next start of the application, finishes it."""
    file = tmp_path / "changes.yaml"
    file.write_text(CHANGES)
    accepted, planned = stored / "repairs" / "1", stored / "offsets" / "3"

    assert killed(stored, file, lambda _: accepted.exists())
    assert values(stored) == BEFORE
    assert killed(stored, file, lambda _: planned.exists())
    assert values(stored) in (BEFORE, AFTER)
    seconds = random.uniform(1, 15)
    killed(stored, file, lambda passed: passed > seconds)
    assert values(stored) in (BEFORE, AFTER)

    step(stored, ["remind", "pay"], StoppedClock(MADE + DELAY / 2))
    assert values(stored) == AFTER, "the next start applies what was accepted"
    assert main(["state", "set", f"{ACCOUNT}/Ada", "total", "2", "--checkpoint", str(stored)]) == 0
    assert values(stored) == AFTER | {("Ada", "total"): 2}
    assert main(["state", "log", "--checkpoint", str(stored)]) == 0
    assert "not applied" not in capsys.readouterr().out


@pytest.mark.broker
def test_ingresses_of_kafka_and_lanes_go_on(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Each record is read once, and published once, with the repaired value after the repair."""
    inputs, out = kafka.topic("in", partitions=2), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/f"]}, semantic="exactly-once")
    registry = StatefulFunctions()

    @registry.bind("t.fns/f", [ValueSpec("count", IntType)])
    def f(ctx: Context, message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        text = f"{message.as_string()} {ctx.storage.count}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=text))

    ada = StringType.serializer()
    for turn, number in enumerate((3, 2)):
        kafka.send(inputs, [("Ada", ada.serialize(f"{turn}"))] * number)
        run(module, registry, checkpoint)
        command = ["state", "set", "t.fns/f/Ada", "count", "100", "--checkpoint", str(checkpoint)]
        assert main(command) == 0

    assert [record.value for record in kafka.receive(out)] == [
        *("0 1", "0 2", "0 3"),
        *("1 101", "1 102"),
    ]
    assert with_state(Folder.at(checkpoint), None, lambda state: state.batch) == 3
