# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for an endpoint, through micro-batches of the dispatcher."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from datetime import timedelta

import attrs
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statefun.engine import chunks
from statefun.engine.address_keys import typename_of
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import RELEASED, TICK
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.policies import Policies
from statefun.engine.program import Program
from statefun.engine.row import Row
from statefun.engine.running_calls import WaitingRunner
from statefun.engine.wheel import LATEST, bucket_key, due_tick, tick_of
from statefun.protocol.runtime_pb2 import AddressState, DelayedMessage, Outcome, Waiting
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream
from statefun.sdk.address import Address, TypeName
from statefun.sdk.context import Context, PrepareMessage
from statefun.sdk.errors import CheckpointError
from statefun.sdk.failure import OnFailure
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation_batch import (
    CircuitReport,
    InvocationBatch,
    InvocationResult,
    Postponed,
    Trouble,
    Turn,
)
from statefun.sdk.message import Message
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import TypedValue

KEY = b"Ada\0t.fns/f"
SECOND = timedelta(seconds=1)
SIZE = 9
"""Bytes of the number of a message; the next byte says whether the function messages itself."""
ECHOED, ECHO = b"e", b"E"


@attrs.define
class Elsewhere:
    """An endpoint that is up or down, as the test says."""

    is_up: bool = True
    most: int = 10**9
    """How many messages it takes at once, until it goes down."""
    suspects: bool = False
    """Whether it has to be called for the address alone, in a turn that never comes."""
    handled: list[bytes] = attrs.field(factory=list)
    asked: int = 0

    def handle(self, value: bytes) -> Message | None:
        """Handle a message; return the message that the function sends to itself, if any."""
        self.handled.append(value)
        is_answered = value[SIZE : SIZE + 1] == ECHOED
        echo = TypedValue("t/bytes", value[:SIZE] + ECHO)
        return Message("t.fns/f", "Ada", echo) if is_answered else None

    async def admit(
        self, _target: Address, _trouble: Trouble, _turn: Turn | None
    ) -> Postponed | None:
        """Refuse the call while the endpoint is down."""
        self.asked += 1
        if self.suspects:
            return Postponed(0, SECOND, suspect_of="server")
        return None if self.is_up else Postponed(0, SECOND, is_down=True)

    async def invoke(
        self, batch: InvocationBatch, _prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Handle the messages until the endpoint goes down."""
        values = [each.argument.value for each in batch.invocations]
        assert values, "a call without messages"
        sent = [each for value in values[: self.most] if (each := self.handle(value))]
        later = Postponed(self.most, SECOND, is_down=True) if len(values) > self.most else None
        return InvocationResult({}, sent, [], [], [], (), later)

    def server_of(self, _target: Address) -> str:
        """Return the server of all addresses."""
        return "server"

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return nothing: tests ask the endpoint itself."""
        return []


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
class Limited(Elsewhere):
    """An endpoint that takes a request only in a while, and answers others that it has to rest."""

    clock: Clock = attrs.field(factory=Clock)
    requests: int = 0
    """How many requests it has taken."""
    free_at: int = 0
    known_free_at: int = 0
    """When it takes the next request, as its last answer says."""

    async def admit(
        self, _target: Address, _trouble: Trouble, _turn: Turn | None
    ) -> Postponed | None:
        """Refuse the call while the endpoint is down, or is known to rest."""
        if self.clock.time < self.known_free_at:
            return Postponed(0, timedelta(milliseconds=self.known_free_at - self.clock.time))
        return await super().admit(_target, _trouble, _turn)

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Handle the messages if it has rested."""
        if self.clock.time < self.free_at:
            self.known_free_at = self.free_at
            rest = timedelta(milliseconds=self.free_at - self.clock.time)
            return InvocationResult({}, [], [], [], [], (), Postponed(0, rest))
        self.requests, self.free_at = self.requests + 1, self.clock.time + 5000
        return await super().invoke(batch, prepare)


@attrs.define
class Runtime:
    """Micro-batches of one task, and its state."""

    endpoint: Elsewhere = attrs.field(factory=Elsewhere)
    states: dict[bytes, bytes] = attrs.field(factory=dict)
    written: int = 0
    """Bytes of states and messages that the newest micro-batch has written."""
    waiting_bytes: int = 0
    waiting_messages: int = 0
    clock: Clock = attrs.field(factory=Clock)
    place: str = "elsewhere"
    """Where the function is: elsewhere, here, or nowhere."""
    skipped: int = 0
    late: int = 0
    """How many micro-batches a bucket gets its tick late."""
    split: bool = False
    """Whether the rows of an address come in several Arrow batches."""
    runner: WaitingRunner = attrs.field(factory=WaitingRunner)
    _rows: list[tuple[Row, int | None, int]] = attrs.field(factory=list)
    _buckets: set[int] = attrs.field(factory=set)
    _batch: int = 0

    def send(self, *values: bytes) -> None:
        """Send messages to the function elsewhere."""
        self._rows += [(Row(KEY, b"", "t/bytes", value), None, 0) for value in values]

    def is_idle(self) -> bool:
        """Return whether there is nothing to do, now or later."""
        return not (self._rows or self._buckets)

    def run(self) -> Outcome:
        """Run a micro-batch, and let a second pass."""
        tick = tick_of(self.clock.now() - self.late * 1000)
        due = {each for each in self._buckets if due_tick(each) <= tick}
        self._buckets -= due
        ticks = [
            (Row(bucket_key(each), b"", TICK, b"%d" % LATEST), None, 2**62) for each in sorted(due)
        ]
        rows = defaultdict(list)
        for row, time, number in [*self._rows, *ticks]:
            rows[row.target].append((time is not None, time or 0, number, row))
        self._rows, self.written = [], 0
        dispatcher = Dispatcher(
            Program(self._functions(), {}, Policies(unregistered=OnFailure.SKIP)),
            BatchClock(self.clock, self.clock.now()),
            batch=self._batch,
            delivered_up_to=self._batch - 1,
            concurrency=10,
            immediate=10,
            runner=self.runner,
        )
        effects = Effects()
        groups = [
            group
            for key, own in rows.items()
            for group in self._groups(key, [row for *_, row in sorted(own, key=lambda r: r[:3])])
        ]
        for wave in (
            [each for each in groups if not each.last],
            [each for each in groups if each.last],
        ):
            for group in dispatcher.dispatch(wave, effects):
                if group.values.changed and group.last:
                    self._store(group.key, group.values.encoded())
        self._collect(effects)
        self._batch += 1
        self.clock.time += 1000
        outcome = dispatcher.summary()
        self.waiting_bytes += sum(outcome.waiting_bytes.values())
        self.waiting_messages += outcome.waiting_messages
        self.skipped += outcome.skipped
        return outcome

    def crash(self) -> None:
        """Run a micro-batch whose effects are lost, with those of its calls."""
        handled = [*self.endpoint.handled]
        before = deepcopy(attrs.asdict(self, recurse=False, filter=_is_stored))
        self.run()
        for name, value in before.items():
            setattr(self, name, value)
        self.endpoint.handled = handled

    def _functions(self) -> StatefulFunctions:
        functions, name = StatefulFunctions(), TypeName("t.fns", "f")

        def here(context: Context, message: Message) -> None:
            sent = self.endpoint.handle(message.typed_value.value)
            if sent is not None:
                context.send(sent)

        if self.place == "elsewhere":
            functions.add(StatefulFunction(name, (), {}, transport=self.endpoint))
        elif self.place == "here":
            functions.bind("t.fns/f")(here)
        return functions

    def _groups(self, key: bytes, rows: list[Row]) -> list[Group]:
        names = ("caller", "typename", "value", "trace")
        caller, typename, value, trace = ([getattr(row, name) for row in rows] for name in names)
        columns = Columns(caller, typename, value, trace, [0] * len(value), cell=lambda *_: None)
        values = AddressValues(self.states.get(key))
        middle = len(rows) // 2 if self.split else 0
        parts = [Group(key, columns, 0, middle, values, last=False)] if middle else []
        return [*parts, Group(key, columns, middle, len(rows), values)]

    def _store(self, key: bytes, state: bytes | None) -> None:
        self.written += len(state or b"")
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def _collect(self, effects: Effects) -> None:
        self._buckets |= effects.buckets
        for batch in (
            pa.ipc.open_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA))
            if effects
            else ()
        ):
            for columns in batch.to_pylist():
                row = Row(**columns)
                self.written += len(row.value)
                if row.typename == RELEASED:
                    entry = DelayedMessage.FromString(row.value)
                    inner = Row(row.target, row.caller, entry.typename, entry.value)
                    self._rows.append((inner, entry.due, entry.sequence))
                else:
                    self._rows.append((row, None, 1 + len(self._rows)))

    def finish(self) -> None:
        """Run micro-batches until there is nothing to do."""
        for _ in range(500):
            if self.is_idle():
                return
            self.run()
        raise AssertionError("it does not end")


def _is_stored(attribute: attrs.Attribute[object], _value: object) -> bool:
    return attribute.name not in {"endpoint", "place", "late", "split", "runner"}


def numbers(values: list[bytes]) -> list[bytes]:
    """Return the values without their padding."""
    return [each[: SIZE + 1] for each in values]


UP = {"up": 10**9, "up for 3": 3}
PLACES = ("elsewhere", "here")
sizes = st.lists(st.sampled_from([0, 5, 20_000, 150_000]), max_size=9)
Step = tuple[str, list[int]]
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("send"), sizes),
    st.tuples(
        st.sampled_from([*UP, "down", "suspects", "run", "run", "crash", "split", "late", *PLACES]),
        st.just([]),
    ),
)


def play(runtime: Runtime, script: list[Step]) -> list[bytes]:
    """Run the steps of a script; return the values of the messages that it has sent."""
    sent: list[bytes] = []
    for what, content in script:
        if what == "send":
            filled = [ECHOED if size == 5 else bytes(1) for size in content]
            values = [
                b"%09d" % (len(sent) + n) + first + bytes(size)
                for n, (first, size) in enumerate(zip(filled, content, strict=True))
            ]
            sent += values
            runtime.send(*values)
        elif what == "run":
            runtime.run()
        elif what == "crash":
            runtime.crash()
        elif what == "split":
            runtime.split = not runtime.split
        elif what == "late":
            runtime.late = 3 - runtime.late
        elif what in UP:
            runtime.endpoint.is_up, runtime.endpoint.most = True, UP[what]
        elif what == "down":
            runtime.endpoint.is_up = False
        elif what == "suspects":
            runtime.endpoint.suspects = not runtime.endpoint.suspects
        else:
            runtime.place = what
    runtime.endpoint.is_up, runtime.endpoint.most, runtime.endpoint.suspects = True, 10**9, False
    return sent


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_what_waits_is_handled_in_order_and_once(script: list[Step]) -> None:
    """However often the endpoint goes down, and whatever arrives or crashes, no message remains."""
    runtime = Runtime()
    sent = numbers(play(runtime, script))
    runtime.finish()
    handled = numbers(runtime.endpoint.handled)
    assert [each for each in handled if not each.endswith(ECHO)] == sent
    echoed = [each[:SIZE] for each in sent if each.endswith(ECHOED)]
    assert [each[:SIZE] for each in handled if each.endswith(ECHO)] == echoed
    assert (runtime.states, runtime.waiting_bytes, runtime.waiting_messages) == ({}, 0, 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=40))
def test_no_message_for_a_removed_function_is_lost(
    script: list[Step],
) -> None:
    """Each message was handled before, in order, or becomes a failure; none remains."""
    runtime = Runtime()
    sent = numbers(play(runtime, script))
    runtime.place = "nowhere"
    runtime.finish()
    handled = numbers(runtime.endpoint.handled)
    own = [each for each in handled if not each.endswith(ECHO)]
    assert own == sent[: len(own)]
    echoes = sum(each.endswith(ECHOED) for each in own)
    assert runtime.skipped == len(sent) + echoes - len(handled)
    assert (runtime.states, runtime.waiting_bytes, runtime.waiting_messages) == ({}, 0, 0)


def test_a_further_message_costs_the_same_however_many_wait() -> None:
    """The same holds for a wake-up while the endpoint is still down."""
    runtime = Runtime()
    runtime.endpoint.is_up = False
    costs, wake_ups = [], []
    for _ in range(30):
        runtime.send(*(bytes(400) for _ in range(1_000)))
        for _ in range(8):
            runtime.run()
        runtime.send(bytes(400))
        runtime.run()
        costs.append(runtime.written)
        runtime.run()  # the message is added to a chunk
        for _ in range(2):
            runtime.run()
            wake_ups.append(runtime.written)
    assert max(costs) < 6_000
    assert 0 < max(wake_ups) < 6_000
    assert runtime.waiting_bytes > 30_000 * 400
    assert runtime.waiting_messages == 30_000 + 30
    waiting = AddressState.FromString(runtime.states[KEY]).waiting
    kept = [
        name
        for key, state in runtime.states.items()
        for value in AddressState.FromString(state).values
        for name, _ in chunks.kept_for(key, value.typename, value.value)
    ]
    assert len(waiting) + len(kept) == 30_030
    assert set(kept) == {typename_of(KEY)}


def test_few_calls_wait_for_chunks_if_a_function_is_slow() -> None:
    """After an outage, the state keeps the messages of several calls."""

    class SlowRunner(WaitingRunner):
        def most(self, _name: str) -> int:
            """Let a call have only some of the messages that wait."""
            return 100

    runtime = Runtime(runner=SlowRunner())
    runtime.endpoint.is_up = False
    runtime.send(*(bytes(400) for _ in range(6_000)))
    for _ in range(8):
        runtime.run()
    runtime.endpoint.is_up = True
    batches = 0
    while not runtime.is_idle():
        runtime.run()
        batches += 1
    assert len(runtime.endpoint.handled) == 6_000
    assert batches < 2 * 60


def test_few_requests_are_made_of_an_endpoint_that_has_to_rest() -> None:
    """Each request that it takes has many of the messages that wait."""
    runtime = Runtime()
    endpoint = runtime.endpoint = Limited(clock=runtime.clock)
    endpoint.is_up = False
    runtime.send(*(bytes(400) for _ in range(3_000)))
    for _ in range(8):
        runtime.run()
    endpoint.is_up = True
    while not runtime.is_idle():
        runtime.run()

    assert len(endpoint.handled) == 3_000
    assert endpoint.requests < 40


def test_a_message_to_the_sender_itself_waits_after_earlier_ones() -> None:
    """This also holds if the endpoint goes down while rows of the address are still to come."""
    runtime = Runtime()
    runtime.send(*(b"%09d" % n + ECHOED for n in range(11)))
    runtime.run()  # the last one of the echoes is delivered in the next micro-batch
    runtime.send(b"%09d" % 11 + ECHOED, bytes(SIZE + 1), bytes(SIZE + 1))
    runtime.endpoint.most, runtime.split = 1, True
    runtime.run()
    runtime.endpoint.most = 10**9
    runtime.finish()
    echoes = [each for each in runtime.endpoint.handled if each.endswith(ECHO)]
    assert echoes == [b"%09d" % n + ECHO for n in range(12)]


def test_what_is_held_back_wakes_up_again_after_the_wake_ups_of_the_same_micro_batch() -> None:
    """These come with later rows of the address, and were meant for an earlier wait."""
    runtime = Runtime(split=True)
    runtime.endpoint.suspects = True
    runtime.send(b"%09d" % 0 + bytes(1))
    runtime.run()
    runtime.run()  # the suspect has asked for its turn again
    runtime.endpoint.suspects, runtime.endpoint.is_up = False, False
    runtime.send(b"%09d" % 1 + bytes(1))
    runtime.run()
    runtime.endpoint.is_up = True
    runtime.finish()
    assert [each[:SIZE] for each in runtime.endpoint.handled] == [b"%09d" % n for n in range(2)]


def test_messages_in_chunks_count_for_their_function() -> None:
    """Also those on their way to or from a chunk, released or not; other messages do not count."""
    content = Waiting(messages=[b"a", b"b"]).SerializeToString()
    released = DelayedMessage(typename=chunks.KEPT, value=content).SerializeToString()
    chunk = chunks.chunk_key(KEY, 0)
    waiting = [("t.fns/f", b"a"), ("t.fns/f", b"b")]

    assert list(chunks.kept_for(KEY, chunks.KEPT, content)) == waiting
    assert list(chunks.kept_for(chunk, chunks.KEPT, content)) == waiting
    assert list(chunks.kept_for(KEY, RELEASED, released)) == waiting
    assert list(chunks.kept_for(KEY, "t/text", content)) == []
    assert chunks.is_own(RELEASED, released)
    assert chunks.is_own(chunks.KEPT, content)
    assert not chunks.is_own("t/text", b"")


def test_a_chunk_out_of_turn_is_an_error_of_the_checkpoint() -> None:
    """Messages would be lost: the error names the address, and both chunks."""
    content = Waiting(messages=[b"a"], chunk=3).SerializeToString()
    columns = Columns([None], [chunks.KEPT], [content], [None], [0], cell=lambda *_: None)
    group = Group(KEY, columns, 0, 1, AddressValues(None))

    with pytest.raises(CheckpointError, match=r"chunk 3 .* t.fns/f/Ada has come instead of chunk"):
        chunks.arrive(group, range(1))
