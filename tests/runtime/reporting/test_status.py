# SPDX-License-Identifier: Apache-2.0
"""The progress that a run shows."""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from harness import KafkaHarness, wait
from patience import PATIENCE

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.reporting import status
from statefun.runtime.reporting.status import Status
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.runtime.terminal.status_line import StatusLine

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def application(
    kafka: KafkaHarness, checkpoint: Path, line: StatusLine | None, **settings: object
) -> Application:
    """Return an application that repeats records, and skips "bad" ones.

    Its topic had records before, which are deleted: offsets are no counts.
    """
    users, out = kafka.topic("users", 2), kafka.topic("out")
    functions = StatefulFunctions()

    @functions.bind("test.fns/echo", on_failure="skip")
    def echo(ctx: Context, message: Message) -> None:
        if message.raw_value() == b"bad":
            raise ValueError("bad")
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.raw_value()))

    kafka.send(users, [("Ada", "gone")] * 100, partition=0)
    before = TopicPartition(users, 0, 100)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_records([before])[before].result(PATIENCE.total_seconds())
    kafka.send(users, [("Ada", "a")] * 9 + [("Ada", "bad")])
    resolved = Settings.resolve({}, None, checkpoint=checkpoint, **settings)
    return Application(
        parse_module(kafka.module({users: ["test.fns/echo"]})), functions, resolved, line=line
    )


def test_the_line_of_a_terminal_says_what_was_read_and_published(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """It shows records in and out, the backlog, the newest batch and failures; the end erases it."""
    screen = io.StringIO()
    app = application(kafka, checkpoint, StatusLine(screen))
    with ThreadPoolExecutor() as threads:
        run = threads.submit(app.run)
        wait(
            lambda: any(
                re.fullmatch(
                    r"in [\d.]+/s \| out [\d.]*[1-9][\d.]*/s \| lag 0 \| batch 0, \d+ s ago \| failures 1",
                    text,
                )
                for text in screen.getvalue().split("\r\x1b[K")
            )
        )
        app.stop()
        with pytest.raises(KeyboardInterrupt):
            run.result(PATIENCE.total_seconds())

    lines = screen.getvalue().split("\r\x1b[K")
    rates = [re.match(r"in ([\d.]+)/s \| out ([\d.]+)/s ", line) for line in lines]
    read, published = zip(*(map(float, found.groups()) for found in rates if found), strict=True)
    assert 0 < max(read) <= 10
    assert 0 < max(published) <= 9
    assert lines[-1] == ""


def test_before_the_first_micro_batch_nothing_is_known_of_the_backlog() -> None:
    """The line says so, rather than 0."""
    screen = io.StringIO()

    Status(Summary(), [], [], 0, StatusLine(screen), None).show(None)

    assert screen.getvalue().endswith("in 0/s | out 0/s | lag ? | no batch yet | failures 0")


def test_a_log_gets_a_line_now_and_then(
    kafka: KafkaHarness,
    checkpoint: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the same facts as the line of a terminal."""
    caplog.set_level("INFO", "statefun")
    monkeypatch.setattr(status, "_INTERVAL", timedelta(0))
    app = application(kafka, checkpoint, None)
    told = re.compile(r"in .* \| lag \d+ \| batch 0, ")
    with ThreadPoolExecutor() as threads:
        run = threads.submit(app.run)
        wait(lambda: any(map(told.match, caplog.messages)))
        app.stop()
        with pytest.raises(KeyboardInterrupt):
            run.result(PATIENCE.total_seconds())
