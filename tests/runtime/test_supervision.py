# SPDX-License-Identifier: Apache-2.0
"""Applications whose Python workers die."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.module.loader import parse_module
from statefun.runtime import application as application_module
from statefun.runtime.application import Application
from statefun.runtime.control import Control, RunEnding
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.runtime.spark_internals.error_texts import LostWorkerError
from statefun.runtime.supervision import Supervision
from statefun.sdk.errors import EngineError

MODULE = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: test/in
  address: localhost:1
  consumerGroupId: test
  topics: [{topic: users, valueFormat: {type: text}, targets: [test.fns/dying]}]
"""


def test_each_restart_needs_progress() -> None:
    """A run that has committed nothing is the last one."""
    newest = -1
    supervision = Supervision(lambda: newest, clock=lambda: 0)
    assert supervision.may_restart()
    newest = 0
    assert supervision.may_restart()
    assert not supervision.may_restart()


def test_restarts_are_bounded() -> None:
    """Ten in ten minutes, also if each run commits something."""
    newest, now = 0, 0.0
    supervision = Supervision(lambda: newest, clock=lambda: now)

    def restarts() -> int:
        nonlocal newest
        count = 0
        while supervision.may_restart():
            count, newest = count + 1, newest + 1
        return count

    assert restarts() == 10
    now = 599
    assert restarts() == 0
    now = 600
    assert restarts() == 10


class LosingRun:
    """A run that gets an order, loses a worker, and ends; the runs after the first one end without losing any."""

    ending: RunEnding | None = None
    begun = 0

    def __init__(self, _definition: object, control: Control, *_others: object) -> None:
        self.summary = Summary(restarts=control.restarts)
        self._control = control

    def complete(self) -> Summary:
        """Do as the class says."""
        LosingRun.begun += 1
        if LosingRun.begun == 1:
            if self.ending is not None:
                self._control.end(self.ending)
            raise LostWorkerError("before its end")
        return self.summary


@pytest.mark.parametrize(
    ("ending", "runs", "restarts"),
    [(None, 2, 1), (RunEnding.STOP, 1, 0), (RunEnding.RESTART, 2, 1), (RunEnding.SIGNAL, 1, None)],
)
def test_an_order_counts_more_than_a_lost_worker(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: RunEnding | None,
    runs: int,
    restarts: int | None,
) -> None:
    """An application that was ordered to end does not begin another run, nor does it end with an error."""
    monkeypatch.setattr(application_module, "Run", LosingRun)
    monkeypatch.setattr(LosingRun, "ending", ending)
    monkeypatch.setattr(LosingRun, "begun", 0)
    settings = Settings.resolve({}, None, checkpoint=tmp_path)
    application = Application(parse_module(MODULE), dying("out", tmp_path, most=0), settings)

    with pytest.raises(KeyboardInterrupt) if restarts is None else nullcontext():
        assert application.run().restarts == restarts

    assert LosingRun.begun == runs


def dying(out: str, deaths: Path, most: int) -> StatefulFunctions:
    """Return a function that kills its worker at the text "die", until there are ``most`` files in a folder."""
    functions = StatefulFunctions()
    folder = str(deaths)

    @functions.bind("test.fns/dying", specs=[ValueSpec("seen", IntType)])
    def die(ctx: Context, message: Message) -> None:
        count = len(os.listdir(folder))  # noqa: PTH208 - a worker gets the text
        if message.as_string() == "die" and count < most:
            (Path(folder) / str(count)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=f"{ctx.storage.seen}"))

    return functions


@pytest.mark.broker
@pytest.mark.spark
def test_a_dead_worker_does_not_end_an_application(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its micro-batch is repeated by another run, once; an application whose next run has no progress ends."""
    users, out, deaths = kafka.topic("users"), kafka.topic("out"), tmp_path / "deaths"
    deaths.mkdir()
    module = kafka.module({users: ["test.fns/dying"]}, semantic="exactly-once")
    module = module.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}")
    kafka.send(users, [("ada", "live"), ("ada", "die"), ("ada", "live")])

    with caplog.at_level("WARNING", "statefun"):
        summary = run(module, dying(out, deaths, most=1), checkpoint)

    assert summary.restarts == 1
    assert "a Python worker has ended during its work" in caplog.text
    assert [record.value for record in kafka.receive(out)] == ["1", "2", "3"]

    kafka.send(users, [("ada", "die")])
    with pytest.raises(EngineError, match="a Python worker has ended"):
        run(module, dying(out, deaths, most=100), checkpoint)

    assert len(list(deaths.iterdir())) == 3
    assert len(kafka.receive(out)) == 3
