# SPDX-License-Identifier: Apache-2.0
"""Applications whose Python workers die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.runtime.supervision import Supervision
from statefun.sdk.errors import EngineError


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
    assert "a Python worker has ended in the middle of a micro-batch" in caplog.text
    assert [record.value for record in kafka.receive(out)] == ["1", "2", "3"]

    kafka.send(users, [("ada", "die")])
    with pytest.raises(EngineError, match="a Python worker has ended"):
        run(module, dying(out, deaths, most=100), checkpoint)

    assert len(list(deaths.iterdir())) == 3
    assert len(kafka.receive(out)) == 3
