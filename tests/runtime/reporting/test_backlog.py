# SPDX-License-Identifier: Apache-2.0
"""The number of messages under way."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from harness import KafkaHarness, run

from statefun import Address, Context, Message, StatefulFunctions
from statefun.protocol.runtime_pb2 import EffectStream, Outcome, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.reporting.backlog import Backlog


def test_staged_messages_count_until_they_are_delivered(checkpoint: Path) -> None:
    """Each micro-batch counts once, also when it is staged again."""
    folder = Folder.at(checkpoint)
    backlog = Backlog(folder, WaitingGauge(folder))
    outcome = Outcome(segment=Segment(messages=EffectStream(records=3)))

    counts = [backlog.count()]
    for outcomes in ([outcome, outcome], [outcome], []):
        backlog.staged(0, outcomes)
        counts.append(backlog.count())
    backlog.staged(1, [Outcome(), outcome])

    assert [*counts, backlog.count()] == [0, 6, 3, 0, 3]


def test_messages_that_wait_at_their_addresses_count(checkpoint: Path) -> None:
    """They are delivered, but not handled: a long call or an endpoint has to come first."""
    folder = Folder.at(checkpoint)
    gauge = WaitingGauge(folder)
    backlog = Backlog(folder, gauge)

    gauge.add(0, [Outcome(waiting_messages=3, waiting_bytes={"t/slow": 30})])
    counts = [backlog.count(), Backlog(folder, WaitingGauge(folder)).count()]
    gauge.add(1, [Outcome(waiting_messages=-2, waiting_bytes={"t/slow": -20})])

    assert [*counts, backlog.count()] == [3, 3, 1]


@pytest.mark.broker
@pytest.mark.spark
def test_a_run_to_the_end_leaves_no_backlog(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Messages that were delivered, and those that wait for their time, are not under way."""
    users = kafka.topic("users")
    functions = StatefulFunctions()

    @functions.bind("test.fns/hop")
    def hop(ctx: Context, message: Message) -> None:
        if ctx.caller is None:
            ctx.send(Address("test.fns/hop", "other"), "hello")
            ctx.send_after(
                timedelta(hours=1), Message("test.fns/hop", "later", message.typed_value)
            )

    kafka.send(users, [("Ada", "a")] * 3)
    summary = run(kafka.module({users: ["test.fns/hop"]}), functions, checkpoint)

    assert summary.invocations == 6
    assert summary.backlog == 0
    folder = Folder.at(checkpoint)
    assert Backlog(folder, WaitingGauge(folder)).count() == 0
