# SPDX-License-Identifier: Apache-2.0
"""Micro-batches in plain Python: the real source, dispatcher, outbox and retention, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import attrs

from statefun import (
    Context,
    IntType,
    Message,
    OnFailure,
    StatefulFunctions,
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Outbox, effect_stream
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_tasks import read_feedback_task
from statefun.runtime.release.retention import Retention
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream

SECOND, DAY = 1000, 86_400_000
START = 100 * DAY
KEY = b"Ada\0t/f"
LIFETIME = timedelta(seconds=2)
CANCEL = -1
"""In the place of a delay: cancel what waits with the token."""
Delay = int | tuple[int, str]


@attrs.define
class SetClock:
    """A clock that tests set."""

    time: int = START
    stopwatch: int = 0

    def now(self) -> int:
        """Return what was set."""
        return self.time

    def monotonic(self) -> int:
        """Return what was set."""
        return self.stopwatch


class Engine:
    """Runs micro-batches one after the other.

    A function sends delayed messages, each with its number, and keeps a value that expires. A
    delay is a number of milliseconds, or that and a cancellation token.
    """

    def __init__(self, folder: Path, targets: int = 3) -> None:
        self.targets = targets
        self.folder = Folder.at(folder)
        self.clock = SetClock()
        self.due: dict[int, int] = {}
        """By number: when a message is due, as the driver's time was when it was sent."""
        self.arrived: list[int] = []
        self.early: list[int] = []
        self.skipped = 0
        """How many messages were not taken, as their token was in use."""
        self.skew = 0
        """By how much the clocks of workers are ahead of the driver's."""
        self.largest = 0
        """The bytes of the largest state so far."""
        self.states: dict[bytes, bytes] = {}
        """The stored state, by key."""
        self._random = Random(targets)
        self._start = {"batch": -1, "tick": -1}
        self._batch = -1
        self.functions = StatefulFunctions()
        self.functions.register(
            "t/f",
            self._call,
            [ValueSpec("v", IntType, expire_after_write=LIFETIME)],
            on_failure=OnFailure.SKIP,
        )
        self.restart()

    def _call(self, ctx: Context, message: Message) -> None:
        if ctx.caller is not None:
            number = message.as_int()
            if self.due[number] > self.clock.now():
                self.early.append(number)
            self.arrived.append(number)
            return
        ctx.storage.v = 1
        number = len(self.due)
        delay, token = json.loads(message.as_string())
        if delay == CANCEL:
            ctx.cancel_delayed_message(token)
            return
        self.due[number] = self.clock.now() + delay
        ctx.send_after(
            timedelta(milliseconds=delay),
            message_builder("t/f", f"{number % self.targets}", int_value=number),
            token,
        )

    def restart(self) -> None:
        """Let new processes take over."""
        self._outbox = Outbox(self.folder)
        self._reader = FeedbackReader(self.folder, self.clock)
        self._retention = Retention(self.folder)
        self._retention.start(self._outbox.recover(self._batch))

    def settle(self, delays: Sequence[Delay], *, crash: bool = False) -> None:
        """Send delayed messages; run micro-batches until there is nothing to do."""
        for _ in range(12):
            if not self.step(delays, crash=crash):
                return
            delays, crash = (), False
        raise AssertionError("micro-batches without end")

    def step(self, delays: Sequence[Delay], *, crash: bool = False) -> bool:
        """Send delayed messages; run a micro-batch, unless there is nothing to do."""
        end = self._reader.latest_offset(self._start)
        if end == self._start and not delays:
            return False
        if crash:  # Spark has planned the batch, and will run it after the restart
            self.restart()
        self._run(delays, end)
        return True

    def _run(self, delays: Sequence[Delay], end: dict[str, int]) -> None:
        effects, states = Effects(), dict(self.states)
        dispatcher = Dispatcher(
            Program(self.functions, {}),
            BatchClock(SetClock(self.clock.now() + self.skew), self.clock.now()),
            batch=self._batch + 1,
            delivered_up_to=None,
            concurrency=1,
            immediate=0,
        )
        for group in dispatcher.dispatch(self._groups(delays, end), effects):
            stored = group.values.encoded()
            states.pop(group.key, None)
            if stored is not None:
                states[group.key] = stored
                self.largest = max(self.largest, len(stored))
        self.skipped += dispatcher.summary().skipped
        buckets, count = sorted(effects.buckets), len(effects.messages)
        messages = (
            effect_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA), count)
            if count
            else None
        )
        manifest = Manifest(
            batch=self._batch + 1, segments=[Segment(messages=messages, buckets=buckets)]
        )
        self._outbox.stage(manifest)
        self._batch, self._start, self.states = self._batch + 1, end, states
        self.folder.child("offsets").write(
            str(self._batch), f"v1\n{{}}\n{json.dumps(end)}".encode()
        )
        self.folder.child("commits").write(str(self._batch), b"v1\n{}")
        self._retention.published(manifest)
        self._retention.committed(self._batch)

    def _groups(self, delays: Sequence[Delay], end: dict[str, int]) -> Iterator[Group]:
        encode = StringType.serializer().serialize
        asked = [(each, "") if isinstance(each, int) else each for each in delays]
        rows: list[tuple[Any, ...]] = [
            (KEY, None, place, None, StringType.typename, encode(json.dumps(each)))
            for place, each in enumerate(asked)
        ]
        if end != self._start:
            tasks = self._reader.tasks(self._start, end)
            for batch in (
                batch for task in tasks for batch in read_feedback_task(self._outbox, task)
            ):
                names = ("target", "timestamp", "offset", "caller", "typename", "value")
                rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        # As the plan of the query says; what else there may be to order Spark does in any way.
        self._random.shuffle(rows)
        rows.sort(key=lambda row: (row[0], row[1] is not None, row[1], row[2]))
        groups = [(key, list(own)) for key, own in groupby(rows, itemgetter(0))]
        self._random.shuffle(groups)
        for key, own in groups:
            _, _, _, caller, typename, value = zip(*own, strict=True)
            none, zeros = [None] * len(value), [0] * len(value)
            columns = Columns(caller, typename, value, none, zeros, cell=lambda *_: None)
            yield Group(key, columns, 0, len(value), AddressValues(self.states.get(key)))
