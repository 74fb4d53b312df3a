# SPDX-License-Identifier: Apache-2.0
"""Micro-batches of one task whose calls leave as a test says: what waits, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import count

import attrs
import pytest

from statefun import (
    Address,
    Context,
    IntType,
    Message,
    OnFailure,
    StatefulFunctions,
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.engine import chunks
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import RELEASED
from statefun.engine.clock import BatchClock
from statefun.engine.delays import WAKE_UP
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.left_calls import LOST, RESULT, encoded_loss
from statefun.engine.program import Program
from statefun.engine.row import Row
from statefun.protocol.runtime_pb2 import DelayedMessage
from statefun.sdk.address import TypeName
from statefun.sdk.context import PrepareMessage
from statefun.sdk.invocation_batch import (
    CircuitReport,
    InvocationBatch,
    InvocationResult,
    Postponed,
    Trouble,
    Turn,
)
from statefun.sdk.stateful_function import StatefulFunction
from statefun.testing.leaving import ChoosingRunner, Report
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.micro_batch import StoppedClock

NOW = 1_000_000
ADA, FAR = b"Ada\0t/f", b"Ada\0t/far"
_STRING = StringType.serializer()


@attrs.define
class Elsewhere:
    """An endpoint that is down."""

    is_known: bool = False
    """Whether the process knows that before it calls the endpoint."""
    handles: int = 0
    """How many messages of a call the endpoint handles, before it is down."""
    echoes: bool = False
    """Whether the address sends itself a message in the next call."""
    handled: list[str] = attrs.field(factory=list)

    async def admit(
        self, _target: Address, _trouble: Trouble, _turn: Turn | None
    ) -> Postponed | None:
        """Refuse the call if the process knows that the endpoint is down."""
        return Postponed(0, timedelta(minutes=1), is_down=True) if self.is_known else None

    async def invoke(
        self, batch: InvocationBatch, _prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Handle some messages."""
        values = [_STRING.deserialize(each.argument.value) for each in batch.invocations]
        self.handled += values[: self.handles]
        rest = Postponed(self.handles, timedelta(minutes=1), is_down=True)
        postponed = rest if len(values) > self.handles else None
        sent = []
        if self.echoes:
            self.echoes = False
            sent = [message_builder("t/far", "Ada", str_value="echo")]
        return InvocationResult({}, sent, [], [], [], (), postponed)

    def server_of(self, _target: Address) -> str:
        """Return the server of all addresses."""
        return "server"

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return nothing: nobody asks."""
        return []


@attrs.define
class Task:
    """Micro-batches of one task, and the states of its addresses."""

    endpoint: Elsewhere = attrs.field(factory=Elsewhere)
    leaves: bool = False
    """Whether the next calls leave."""
    most: int = 1000
    """How many messages a call takes."""
    is_short: bool = False
    """Whether a call is over after its first message."""
    immediate: int = 1000
    states: dict[bytes, bytes] = attrs.field(factory=dict)
    handled: list[str] = attrs.field(factory=list)
    """The messages that functions have handled, each after the name of the function."""
    now: int = NOW
    skipped: int = 0
    _numbers: count[int] = attrs.field(factory=count)
    _runner: ChoosingRunner = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._runner = ChoosingRunner(lambda: self.leaves, lambda: self.most, lambda: self.is_short)

    def _functions(self) -> StatefulFunctions:
        functions = StatefulFunctions()

        @functions.bind("t/f", [ValueSpec("count", IntType)], on_failure=OnFailure.SKIP)
        async def f(ctx: Context, message: Message) -> None:
            text = self._handle(ctx, message)
            ctx.storage.count = (ctx.storage.count or 0) + 1
            for index, target in enumerate(text.split()[1:]):
                ctx.send(message_builder(f"t/{target}", "Ada", str_value=f"{text[0]}.{index}"))

        @functions.bind("t/plain")
        def plain(ctx: Context, message: Message) -> None:
            self._handle(ctx, message)

        @functions.bind("t/coroutine")
        async def coroutine(ctx: Context, message: Message) -> None:
            self._handle(ctx, message)

        functions.add(StatefulFunction(TypeName("t", "far"), (), {}, transport=self.endpoint))
        return functions

    def _handle(self, ctx: Context, message: Message) -> str:
        text = message.as_string()
        self.handled.append(f"{ctx.address.name} {text}")
        return text

    def run(self, *rows: MessageRow) -> list[Row]:
        """Run a micro-batch; return the messages that it sends."""
        dispatcher = Dispatcher(
            Program(self._functions(), {}),
            BatchClock(StoppedClock(self.now), self.now),
            batch=(number := next(self._numbers)),
            delivered_up_to=number - 1,
            concurrency=10,
            immediate=self.immediate,
            runner=self._runner,
        )
        effects = Effects()
        targets = dict.fromkeys(row.target for row in rows)
        for key in targets:
            own = [row for row in rows if row.target == key]
            group = Group(key, columns_of(own), 0, len(own), AddressValues(self.states.get(key)))
            for _ in dispatcher.dispatch([group], effects):
                state = group.values.encoded() if group.values.changed else self.states.get(key)
                self.states[key] = state or b""
        self.skipped += dispatcher.summary().skipped
        return [Row(*row) for piece in effects.messages.take() for row in zip(*piece, strict=True)]

    def run_all(self, *rows: MessageRow) -> None:
        """Run micro-batches until there are no messages and reports any more."""
        for _ in range(50):
            if not rows:
                return
            sent = self.run(*rows)
            rows = (*again(sent), *map(result, self.reports()))
        raise AssertionError("it does not end")

    def reports(self) -> list[Report]:
        """Return what calls have come to that have left."""
        return self._runner.take()

    def values(self, key: bytes) -> AddressValues:
        """Return the stored values of an address."""
        return AddressValues(self.states.get(key))


def message(text: str, target: bytes = ADA) -> MessageRow:
    """Return a message from outside."""
    return MessageRow(target, None, StringType.typename, bytes(_STRING.serialize(text)))


def result(report: Report) -> MessageRow:
    """Return the message that has the result of a call."""
    return MessageRow(report.key, None, RESULT, report.result)


def lost(report: Report) -> MessageRow:
    """Return the message that says that the process of a call has ended."""
    return MessageRow(report.key, None, LOST, encoded_loss(report.attempt, has_begun=True))


def again(rows: Sequence[Row]) -> list[MessageRow]:
    """Return the messages of a micro-batch for the next one, as the feedback source orders them."""
    messages, released = [], []
    for row in rows:
        if row.typename != RELEASED:
            messages.append(MessageRow(*row))
            continue
        entry = DelayedMessage.FromString(row.value)
        back = MessageRow(row.target, row.caller, entry.typename, entry.value)
        released.append((entry.sequence, back))
    return [*messages, *(back for _, back in sorted(released))]


def test_no_call_is_made_for_messages_that_are_still_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call without messages would leave, and the chunks would never be asked for."""
    monkeypatch.setattr(chunks, "_FULL_BYTES", 1)
    task = Task(leaves=True, most=1)

    task.run_all(message("1"), message("2"), message("3"))

    assert task.handled == ["f 1", "f 2", "f 3"]
    assert task.values(ADA).under_way is None


def test_a_message_to_a_coroutine_function_goes_through_the_outbox() -> None:
    """Its call may leave; in the micro-batch of its sender, what it does not handle would have no place."""
    task = Task(is_short=True)

    sent = task.run(message("1 coroutine coroutine"))

    assert task.handled == ["f 1 coroutine coroutine"]
    assert [row.target for row in sent] == [b"Ada\0t/coroutine"] * 2
    task.run_all(*again(sent))
    assert task.handled[1:] == ["coroutine 1.0", "coroutine 1.1"]


def test_immediate_messages_are_delivered_before_those_without_room_although_the_sender_waits() -> (
    None
):
    """The first message is delivered at once, and there is no room for the others in this micro-batch."""
    task = Task(immediate=1, is_short=True)

    sent = task.run(message("1 plain plain plain"), message("2"))

    assert task.handled == ["f 1 plain plain plain", "plain 1.0"]
    plain = [_STRING.deserialize(row.value) for row in sent if row.target == b"Ada\0t/plain"]
    assert plain == ["1.1", "1.2"]


def test_a_message_fails_only_if_processes_end_with_itself() -> None:
    """Two processes have ended with the first message, which then succeeds; the next one begins anew."""
    task = Task(leaves=True, most=1)
    task.run(message("1"), message("2"), message("3"))
    task.run(*map(lost, task.reports()))
    task.leaves = False
    sent = task.run(*map(lost, task.reports()))
    task.leaves = True
    task.run(*again(sent))

    task.run(*map(lost, task.reports()))

    assert task.skipped == 0
    assert task.values(ADA).under_way is not None
    task.run_all(*map(result, task.reports()))
    assert list(dict.fromkeys(task.handled)) == ["f 1", "f 2", "f 3"]


def test_an_address_waits_for_its_endpoint_also_with_more_messages_than_a_call_takes() -> None:
    """The messages for later calls do not wake it up before its time."""
    task = Task(Elsewhere(is_known=True), most=1)

    sent = task.run(message("1", FAR), message("2", FAR))

    assert [row.typename for row in sent if row.target == FAR] == []
    assert task.values(FAR).waiting_until > NOW


@pytest.mark.parametrize("leaves", [True, False])
def test_messages_of_a_call_that_wait_again_come_before_those_that_have_waited(
    monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    """Also if they are so many that some of them are moved to chunks."""
    monkeypatch.setattr(chunks, "_FULL_BYTES", 60)
    task = Task(Elsewhere(), leaves=leaves, most=4)
    texts = [f"message {number}" for number in range(6)]
    sent = task.run(*(message(text, FAR) for text in texts))
    sent = task.run(*again(sent), *map(result, task.reports()), message("last", FAR))

    task.endpoint.handles, task.leaves, task.now = 1000, False, NOW + 120_000
    task.run_all(*again(sent), MessageRow(FAR, FAR, WAKE_UP, b"%d" % task.now))

    assert task.endpoint.handled == [*texts, "last"]


def test_a_message_to_itself_waits_if_the_endpoint_is_down_when_the_call_has_its_result() -> None:
    """Nobody has asked the transport in this micro-batch, so it has not admitted a call."""
    task = Task(Elsewhere(handles=1000, echoes=True), leaves=True)
    task.run(message("1", FAR))
    task.endpoint.is_known, task.leaves = True, False

    sent = task.run(*map(result, task.reports()))
    task.run(*again(sent))

    assert task.endpoint.handled == ["1"]
    assert task.values(FAR).waiting_until > NOW
    task.endpoint.is_known, task.now = False, NOW + 120_000
    task.run_all(MessageRow(FAR, FAR, WAKE_UP, b"%d" % task.now))
    assert task.endpoint.handled == ["1", "echo"]


def test_a_message_to_itself_does_not_overtake_earlier_ones_in_the_outbox() -> None:
    """A call that is over after its first message sends one, while earlier ones come in the same micro-batch."""
    task = Task(leaves=True, most=1, immediate=1)
    task.run(message("1 f f f"), message("2 f"), message("3"))
    task.most, task.is_short = 2, True
    # 1.0 is immediate, 1.1 and 1.2 go through the outbox.
    sent = task.run(*map(result, task.reports()))

    task.run_all(*map(result, task.reports()), *again(sent))

    own = [each for each in task.handled if "." in each]
    assert own == ["f 1.0", "f 1.1", "f 1.2", "f 2.0"]
