# SPDX-License-Identifier: Apache-2.0
"""Runs a program in the test kit, and notes what is delivered in each micro-batch."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

from event_time_model.functions import START, components_of, functions_of
from event_time_model.programs import ROWS, Program, Step
from statefun.engine.delays import delayed_messages
from statefun.sdk.times import to_epoch_millis
from statefun.testing import InProcessApplication
from statefun.testing.channels import Channels
from statefun.testing.message_rows import MessageRow
from statefun.testing.micro_batch import BatchEffects
from statefun.testing.tested import loaded
from statefun.testing.waiting_ingresses import WaitingIngresses

EPOCH_START = to_epoch_millis(START)
"""The start, in milliseconds since the epoch."""
_END = timedelta(minutes=10)


class Written(NamedTuple):
    """A record was written."""

    row: MessageRow
    now: int


class Planned(NamedTuple):
    """The watermark of the next micro-batch was computed."""

    now: int
    watermark: int | None


class Committed(NamedTuple):
    """A micro-batch was committed."""

    now: int
    watermark: int | None
    groups: Sequence[tuple[bytes, Sequence[MessageRow]]]
    done: BatchEffects


class Observed(InProcessApplication):
    """An application under test that notes its micro-batches."""

    def _begin(self, *args: Any, **options: Any) -> None:
        super()._begin(*args, **options)
        self.events: list[Written | Planned | Committed] = []
        self.unequal: list[str] = []
        """The parts of repeated micro-batches that were not as in the first attempt."""
        self._ready = _ObservedChannels(self)
        self._attempts: list[tuple[Any, BatchEffects]] = []
        run, advance = self._micro_batches.run, self._events.advance

        def run_noted(groups: Any, states: Any, now: int, watermark: int | None) -> BatchEffects:
            before = self._attempts[-1:]
            done = run(groups, states, now, watermark)
            if before and _rows(before[0][0][1]) == _rows(groups):
                self._compare(before[0][1], done)
            self._attempts.append(((now, [*groups], watermark), done))
            return done

        def advance_noted(undelivered: Iterable[MessageRow], now: int) -> int | None:
            watermark = advance(undelivered, now)
            self.events.append(Planned(now, watermark))
            return watermark

        self._micro_batches.run = run_noted  # type: ignore[method-assign, assignment]
        self._events.advance = advance_noted  # type: ignore[method-assign]

    def wrote(self, row: MessageRow) -> None:
        """Note a row of a record."""
        self.events.append(Written(row, self._milliseconds))

    def _compare(self, first: BatchEffects, again: BatchEffects) -> None:
        ones, others = (
            (each.states, sorted(map(_content, each.messages)), sorted(map(repr, each.records)))
            for each in (first, again)
        )
        if ones != others:
            self.unequal.append(f"micro-batch {self._batch}: {ones} and then {others}")

    def _commit(self, done: BatchEffects) -> None:
        (now, groups, watermark), last = self._attempts[-1]
        assert last is done
        self.events.append(Committed(now, watermark, groups, done))
        self._attempts.clear()
        super()._commit(done)


class _ObservedChannels(Channels):
    def __init__(self, application: Observed) -> None:
        super().__init__(application._random, WaitingIngresses(application.module))
        self._application = application

    def add(self, sender: Hashable, message: MessageRow) -> None:
        if message.record is not None:
            self._application.wrote(message)
        super().add(sender, message)


def _content(message: MessageRow) -> str:
    """Return all of a message but what depends on the order of calls in an attempt.

    That is the numbers that order delayed messages, and the order of addresses that wake up at one time.
    """
    entries = [*delayed_messages(message.typename, message.value or b"")]
    for each in entries:
        each.ClearField("sequence")
    return repr(message._replace(value=b"") if entries else message) + repr(
        sorted(map(repr, entries))
    )


def _rows(groups: Sequence[tuple[bytes, Sequence[MessageRow]]]) -> list[int]:
    return sorted(id(row) for _, rows in groups for row in rows)


class Trace(NamedTuple):
    """What has happened in a program."""

    events: Sequence[Written | Planned | Committed]
    journal: Sequence[Any]
    """What functions have noted in committed micro-batches."""
    published: Sequence[Any]
    """What was published of it."""
    skipped: int
    """How many messages a policy has skipped."""
    unequal: Sequence[str]
    watermark: int | None
    """The watermark in the end."""
    left: Sequence[str]
    """The addresses that have state in the end."""


def observe(program: Program) -> Trace:
    """Run a program to its end."""
    chance = Random(program.seed)
    app = Observed.of(
        loaded(None, None, functions_of(program), components_of(program)),
        program.seed,
        crashes=(lambda _: chance.random() < program.crashes) if program.crashes else None,
    )
    assert isinstance(app, Observed)
    for step in program.steps:
        _produce(app, step)
        if step.drains:
            app.drain()
        if step.pause:
            app.advance(timedelta(milliseconds=step.pause))
    app.drain()
    for _ in range(
        4
    ):  # a message that waits for the watermark may then wait for the clock, and so on
        app.advance(_END)
        app.drain()
    journal = [
        json.loads(record.value or b"")
        for event in app.events
        if isinstance(event, Committed)
        for _, record in event.done.records
    ]
    return Trace(
        app.events,
        journal,
        [each.json() for each in app.egress("journal")],
        len(app.skipped),
        app.unequal,
        app._events.progress.watermark,
        sorted(str(each) for each in app.addresses() if each.typename != "test/table"),
    )


def _produce(app: InProcessApplication, step: Step) -> None:
    value: str | None = None
    if step.role == "row":
        value = json.dumps({"number": step.number})
    elif step.role != "gone":
        value = json.dumps([step.number, step.role, step.key, step.hops])
    app.produce(
        step.topic,
        step.key,
        value,
        timestamp=START + timedelta(milliseconds=step.time),
        partition=step.partition,
    )


def ingress_of(topic: str) -> str:
    """Return the ingress of a topic."""
    return ROWS if topic == "rows" else "test/streams"
