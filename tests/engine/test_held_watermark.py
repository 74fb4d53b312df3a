# SPDX-License-Identifier: Apache-2.0
"""Messages that hold the watermark while no ingress declares event time for some runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import attrs
import pytest

from statefun import Context, KafkaIngress, Message, StatefulFunctions
from statefun.engine.left_calls import LOST, encoded_loss
from statefun.engine.program import Program
from statefun.engine.watermark import (
    EventProgress,
    Partition,
    Situation,
    next_progress,
    without_event_time,
)
from statefun.module.event_time import EventTime
from statefun.protocol.runtime_pb2 import EventTimes
from statefun.sdk.record import KafkaRecord
from statefun.testing.leaving import ChoosingRunner
from statefun.testing.message_rows import MessageRow, rows_of_record
from statefun.testing.micro_batch import BatchEffects, MicroBatches
from statefun.testing.tested import loaded

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
INGRESS = "com.example/in"
NOW = int(START.timestamp() * 1000)


def ingress(*, declares: bool) -> KafkaIngress:
    """Return the ingress, with or without event time."""
    builder = (
        KafkaIngress.for_id(INGRESS)
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic("in", targets=["t/f"], valueFormat={"type": "text"})
    )
    if declares:
        builder = builder.with_event_time(out_of_order=timedelta(0))
    return builder.build()


@attrs.define
class Checkpoint:
    """The states and the event time that runs of one application leave to each other."""

    states: dict[bytes, bytes] = attrs.field(factory=dict)
    progress: EventProgress = attrs.field(factory=EventProgress)
    leaves: bool = False
    """Whether the next calls leave their micro-batch."""
    _runner: ChoosingRunner = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._runner = ChoosingRunner(lambda: self.leaves, lambda: 1000, lambda: False)

    def run(self, rows: list[MessageRow], *, declares: bool) -> BatchEffects:
        """Run a micro-batch with messages to one address; then plan the next one as the feedback source does."""
        source = ingress(declares=declares)
        functions = StatefulFunctions()

        @functions.bind("t/f")
        async def f(_ctx: Context, _message: Message) -> None:
            pass

        program = loaded(None, None, functions, [source])
        batches = MicroBatches(
            Program.of(program.functions, program.module), twice=False, runner=self._runner
        )
        watermark = self.progress.watermark if declares else None
        done = batches.run([(rows[0].target, rows)], self.states, NOW, watermark)
        self.states |= {key: state or b"" for key, state in done.states.items()}
        if declares:
            self._plan([done.event_times], {INGRESS: source.event_time})
        else:
            self.progress = without_event_time(self.progress, [done.event_times])
        return done

    def _plan(self, facts: list[EventTimes], settings: Mapping[str, EventTime | None]) -> None:
        known = {name: each for name, each in settings.items() if each is not None}
        situation = Situation([Partition(INGRESS, "in", 0)], {}, NOW)
        self.progress = next_progress(self.progress, facts, known, situation)

    def record(self, seconds: int, *, declares: bool) -> list[MessageRow]:
        """Return the messages of a record of an event time."""
        [route] = ingress(declares=declares).topics
        time = START + timedelta(seconds=seconds)
        record = KafkaRecord(b"Ada", b"hello", "in", 0, seconds, time, ())
        functions = StatefulFunctions()
        functions.bind("t/f")(lambda _ctx, _message: None)
        return [*rows_of_record(ingress(declares=declares).id, record, route, functions)]


@pytest.mark.parametrize("declares", [True, False])
def test_a_long_call_that_ends_in_a_run_without_event_time_holds_the_watermark_no_longer(
    *, declares: bool
) -> None:
    """A later run declares event time again: the watermark goes on, as nothing is under way."""
    checkpoint = Checkpoint(leaves=True)

    [report] = checkpoint.run(checkpoint.record(10, declares=True), declares=True).reports
    checkpoint.leaves = False
    loss = encoded_loss(report.attempt, has_begun=False, has_ended=False)  # by another run
    checkpoint.run([MessageRow(report.key, None, LOST, loss)], declares=declares)
    for seconds in (20, 30):
        checkpoint.run(checkpoint.record(seconds, declares=True), declares=True)

    assert checkpoint.progress.waiting == {}
    assert checkpoint.progress.watermark == NOW + 30_000
