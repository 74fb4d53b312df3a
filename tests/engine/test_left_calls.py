# SPDX-License-Identifier: Apache-2.0
"""Calls that leave their micro-batches, through micro-batches of the dispatcher that may crash."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import count
from random import Random
from unittest.mock import patch

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statefun import (
    Context,
    IntType,
    KafkaEgress,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    ValueSpec,
)
from statefun.engine import chunks
from statefun.engine.address_keys import address_of
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import RELEASED, TICK
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.failures import FailedMessage, FailureCounts
from statefun.engine.groups import Columns, Group
from statefun.engine.left_calls import LOST, RESULT, encoded_loss
from statefun.engine.program import Program
from statefun.engine.row import Row
from statefun.engine.wheel import LATEST, bucket_key, due_tick, tick_of
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import DelayedMessage
from statefun.sdk.failure import OnFailure, Retry
from statefun.sdk.types import TypedValue
from statefun.testing.leaving import ChoosingRunner, Report

ADA, BOB = b"Ada\0t/f", b"Bob\0t/f"
TARGETS = {
    "self": None,
    "other": "t/f",
    "stateless": "t/plain",
    "coroutine": "t/coroutine",
    "later": None,
}
"""What the function does for a message: the types that it messages; None is its own address."""
FAIL, FAIL_TWICE = "fail", "fail twice"
_OUT = KafkaEgress.for_id("t/out").with_kafka_address("kafka:9092").build()
_FULL = 300
"""The size of a chunk, in bytes: a large message, or some small ones."""
Script = Mapping[str, object]


@attrs.frozen
class Handled:
    """A message that a function has handled, in the order of the egress."""

    target: str
    caller: str
    number: str
    actions: tuple[str, ...]


def functions() -> StatefulFunctions:
    """Return functions that do what their messages say, and write a record about each message."""
    registry, out = StatefulFunctions(), "t/out"

    def read(ctx: Context, message: Message) -> tuple[str, list[str]]:
        number, actions, _ = json.loads(message.typed_value.value)
        content = [str(ctx.address), str(ctx.caller or ""), number, actions]
        ctx.send(KafkaEgressMessage(out, topic="out", value=json.dumps(content)))
        return number, actions

    @registry.bind("t/f", [ValueSpec("count", IntType)], on_failure=OnFailure.SKIP)
    async def f(ctx: Context, message: Message) -> None:
        number, actions = read(ctx, message)
        ctx.storage.count = (ctx.storage.count or 0) + 1
        for index, action in enumerate(actions):
            if action == FAIL:
                raise ValueError(action)
            own = ctx.address.id
            id_ = own if action != "other" else "Bob" if own == "Ada" else "Ada"
            typename = TARGETS[action] or ctx.address.typename
            padding = " " * (_FULL if index % 2 else 0)
            value = TypedValue("t/v", json.dumps([f"{number}.{index}", [], padding]).encode())
            sent = Message(str(typename), id_, value)
            if action == "later":
                ctx.send_after(timedelta(seconds=2), sent)
            else:
                ctx.send(sent)

    @registry.bind("t/plain")
    def plain(ctx: Context, message: Message) -> None:
        read(ctx, message)

    @registry.bind("t/coroutine", on_failure=Retry(2, timedelta(seconds=1), OnFailure.SKIP))
    async def coroutine(ctx: Context, message: Message) -> None:
        read(ctx, message)

    return registry


class _Skipped(FailureCounts):
    """Keeps the numbers of the messages that were skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[str] = []

    def skipped(self, failed: FailedMessage) -> None:
        """Keep the number of a message."""
        super().skipped(failed)
        self.numbers.append(json.loads(failed.value or b"")[0])


@attrs.define
class Clock:
    """A clock that the test sets."""

    time: int = 1_000_000

    def now(self) -> int:
        """Return the time."""
        return self.time

    def monotonic(self) -> int:
        """Return the same."""
        return self.time


@attrs.define
class _Stored:
    """What a crash leaves as it was: all that is committed."""

    states: dict[bytes, bytes] = attrs.field(factory=dict)
    rows: list[tuple[Row, int | None, int]] = attrs.field(factory=list)
    """Messages for the next micro-batch: with due time, if they were delayed, and number."""
    buckets: set[int] = attrs.field(factory=set)
    handled: list[Handled] = attrs.field(factory=list)
    skipped: list[str] = attrs.field(factory=list)
    waiting_bytes: int = 0
    waiting_messages: int = 0
    batch: int = 0


class Runtime:
    """Micro-batches of one task, whose calls leave as a random generator says.

    Args:
        random: decides what the runtime may do as it likes, and what may go wrong.
        immediate: how many messages of an address are delivered in the micro-batch that sends them.
        most: the largest number of messages of a call.
    """

    def __init__(self, random: Random, immediate: int = 2, most: int = 3) -> None:
        self.random = random
        self.immediate = immediate
        self.leaves = 0.5
        """How often a call leaves."""
        self.stored = _Stored()
        self.first_batch = 0
        self.reports: list[Report] = []
        self.log: dict[str, bytes] = {}
        """The addresses of the calls under way, as the driver's log has them, by their names."""
        self._told: set[str] = set()
        """The calls about which the present micro-batch tells their addresses."""
        self.clock = Clock()
        self.program = Program.of(functions(), Module((), (_OUT,)))
        self.runner = ChoosingRunner(
            lambda: random.random() < self.leaves,
            lambda: random.randint(1, most),
            lambda: random.random() < self.leaves,
        )
        self.numbers = count(1)
        self.sent: list[tuple[bytes, str, list[str]]] = []

    def send(self, target: bytes, actions: list[str], size: int = 0) -> None:
        """Send a message from outside."""
        number = f"{next(self.numbers)}"
        self.sent.append((target, number, actions))
        value = json.dumps([number, actions, " " * size]).encode()
        self.stored.rows.append((Row(target, b"", "t/v", value), None, 0))

    def restart(self) -> None:
        """Begin a new run: the calls in the log are lost."""
        self.first_batch = self.stored.batch
        self.runner.take()
        self.reports = [Report(key, attempt, None) for attempt, key in self.log.items()]

    def step(self, *, crash: bool = False) -> None:
        """Run a micro-batch, and let a second pass."""
        stored = self.stored
        before = attrs.evolve(
            stored,
            states={**stored.states},
            rows=[*stored.rows],
            buckets={*stored.buckets},
            handled=[*stored.handled],
            skipped=[*stored.skipped],
        )
        reports, self._told = [*self.reports], set()
        self._run()
        if crash:
            self.stored, self.reports = before, reports
        elif self.random.random() >= self.leaves:  # else the log keeps calls that are over
            self.log = {name: key for name, key in self.log.items() if name not in self._told}
        self.reports += self.runner.take()
        self.clock.time += 1000

    def _run(self) -> None:
        stored, counts, effects = self.stored, _Skipped(), Effects()
        delivered = stored.batch - 2
        dispatcher = Dispatcher(
            self.program,
            BatchClock(self.clock, self.clock.now()),
            batch=stored.batch,
            delivered_up_to=delivered if delivered >= self.first_batch - 1 else None,
            concurrency=10,
            immediate=self.immediate,
            counts=counts,
            runner=self.runner,
        )
        for wave in self._waves():
            for group in dispatcher.dispatch(wave, effects):
                if group.last and group.values.changed:
                    self._store(group.key, group.values.encoded())
        outcome = dispatcher.summary()
        self.log |= {call.attempt: call.address for call in outcome.detached}
        stored.waiting_bytes += sum(outcome.waiting_bytes.values())
        stored.waiting_messages += outcome.waiting_messages
        stored.skipped += counts.numbers
        self._collect(effects)
        stored.batch += 1

    def _waves(self) -> Iterator[list[Group]]:
        """Yield the groups of each Arrow batch."""
        waves: dict[int, list[Group]] = defaultdict(list)
        groups = [*self._rows().items()]
        self.random.shuffle(groups)
        for key, rows in groups:
            names = ("caller", "typename", "value", "trace")
            caller, typename, value, trace = (
                [getattr(row, name) for row in rows] for name in names
            )
            flags = [0] * len(rows)
            columns = Columns(caller, typename, value, trace, flags, cell=lambda *_: None)
            values = AddressValues(self.stored.states.get(key))
            most = min(3, len(rows))
            inner = self.random.sample(range(1, len(rows)), self.random.randint(1, most) - 1)
            wave = self.random.randint(0, 1)
            for start, end in zip([0, *sorted(inner)], [*sorted(inner), len(rows)], strict=True):
                waves[wave].append(Group(key, columns, start, end, values, last=end == len(rows)))
                wave += 1
        for wave in sorted(waves):
            yield waves[wave]

    def _rows(self) -> dict[bytes, list[Row]]:
        """Return the messages for this micro-batch by their target, in order."""
        stored, tick = self.stored, tick_of(self.clock.now())
        due = {each for each in stored.buckets if due_tick(each) <= tick}
        stored.buckets -= due
        own: dict[bytes, list[Row]] = defaultdict(list)
        delayed: dict[bytes, list[tuple[int, int, Row]]] = defaultdict(list)
        for row, time, number in stored.rows:
            if time is None:
                own[row.target].append(row)
            else:
                delayed[row.target].append((time, number, row))
        stored.rows = []
        for row in self._reported():
            rows = own[row.target]
            rows.insert(self.random.randint(0, len(rows)), row)
        for key, late in delayed.items():
            own[key] += [row for *_, row in sorted(late, key=lambda each: each[:2])]
        for bucket in due:
            key = bucket_key(bucket)
            own[key].append(Row(key, b"", TICK, b"%d" % LATEST))
        return own

    def _reported(self) -> Iterator[Row]:
        """Yield reports about calls: some come late, twice or never, or although the call is lost."""
        for report in [*self.reports]:
            if self.random.random() < self.leaves:
                continue
            self._told.add(report.attempt)
            what = self.random.random()
            if what < self.leaves / 3:
                yield Row(report.key, b"", LOST, encoded_loss(report.attempt, has_begun=True))
            if what < self.leaves / 6 or report.result is None:
                if report.result is None:
                    yield Row(report.key, b"", LOST, encoded_loss(report.attempt, has_begun=True))
            else:
                yield Row(report.key, b"", RESULT, report.result)
            if self.random.random() >= self.leaves:
                self.reports.remove(report)

    def _store(self, key: bytes, state: bytes | None) -> None:
        if state is None:
            self.stored.states.pop(key, None)
        else:
            self.stored.states[key] = state

    def _collect(self, effects: Effects) -> None:
        stored = self.stored
        stored.buckets |= effects.buckets
        for row in (
            Row(*row) for piece in effects.messages.take() for row in zip(*piece, strict=True)
        ):
            if row.typename == RELEASED:
                entry = DelayedMessage.FromString(row.value)
                inner = Row(row.target, row.caller, entry.typename, entry.value)
                stored.rows.append((inner, entry.due, entry.sequence))
            else:
                stored.rows.append((row, None, 0))
        for rows in effects.egress.values():
            for record in (record for piece in rows.take() for record in zip(*piece, strict=True)):
                target, caller, number, actions = json.loads(record[2])
                stored.handled.append(Handled(target, caller, number, tuple(actions)))

    def finish(self) -> None:
        """Run micro-batches, in which nothing goes wrong any more, until there is nothing to do."""
        self.leaves = 0.0
        for _ in range(200):
            if not (self.stored.rows or self.stored.buckets or self.reports):
                return
            self.step()
        raise AssertionError("it does not end")


def check(runtime: Runtime) -> None:
    """Check that each message was handled once, in the order of its sender, and that none waits."""
    handled = runtime.stored.handled
    expected: Counter[str] = Counter()
    failing: Counter[str] = Counter()
    orders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, number, actions in runtime.sent:
        (failing if FAIL in actions else expected)[number] += 1
        orders["", str(address_of(key))].append(number)
    skipped = Counter(runtime.stored.skipped)
    for each in handled:
        for index, action in enumerate(each.actions):
            child, own = f"{each.number}.{index}", each.target.rpartition("/")[2]
            id_ = own if action != "other" else "Bob" if own == "Ada" else "Ada"
            expected[child] += 1
            if action != "later":
                orders[each.target, f"{TARGETS[action] or 't/f'}/{id_}"].append(child)
    assert Counter(each.number for each in handled) + skipped == expected + failing
    assert skipped >= failing
    actual: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in handled:
        actual[each.caller, each.target].append(each.number)
    for pair, order in orders.items():
        from_it = {*order}
        in_order = [each for each in order if each not in skipped]
        assert [each for each in actual[pair] if each in from_it] == in_order, pair
    for key, state in runtime.stored.states.items():
        values = AddressValues(state)
        assert not any((values.waiting, values.chunks, values.under_way))
        if key in {ADA, BOB}:
            name = str(address_of(key))
            assert IntType.serializer().deserialize(values.values["count"].value) == sum(
                each.target == name for each in handled
            )
    assert (runtime.stored.waiting_bytes, runtime.stored.waiting_messages) == (0, 0)


actions = st.lists(st.sampled_from([*TARGETS, FAIL]), max_size=4)
steps = st.one_of(
    st.tuples(st.sampled_from([ADA, ADA, BOB]), actions, st.sampled_from([0, 0, _FULL])),
    st.sampled_from(["step", "step", "step", "crash", "restart"]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(steps, max_size=30),
    st.randoms(use_true_random=False),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_what_leaves_is_handled_once_and_in_order(
    script: list[str | tuple[bytes, list[str], int]], random: Random, immediate: int, most: int
) -> None:
    """Whatever leaves, crashes, and comes late, twice or never, each message has its effects once."""
    with patch.object(chunks, "_FULL_BYTES", _FULL):
        runtime = Runtime(random, immediate, most)
        for each in script:
            if each == "restart":
                runtime.restart()
            elif isinstance(each, str):
                runtime.step(crash=each == "crash")
            else:
                runtime.send(*each)
        runtime.finish()
        check(runtime)
