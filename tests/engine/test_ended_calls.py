# SPDX-License-Identifier: Apache-2.0
"""What calls that have left hold while they go on, and what they report when they end."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import attrs
import pytest
from finished_futures import finished
from micro_batches import SetClock

from statefun import Context, IntType, KafkaEgress, Message, StatefulFunctions, ValueSpec
from statefun.engine import left_calls
from statefun.engine.address_values import AddressValues
from statefun.engine.call_loop import LeavingCalls
from statefun.engine.clock import BatchClock, Clock, SystemClock
from statefun.engine.delays import WAKE_UP
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.left_calls import LOST, RESULT, encoded_loss
from statefun.engine.program import Program
from statefun.engine.running_calls import CallRunner
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import AddressState, CallResult
from statefun.sdk.address import Address, TypeName
from statefun.sdk.failure import OnFailure
from statefun.sdk.invocation_batch import (
    InvocationBatch,
    InvocationResult,
    Transport,
    Turn,
)
from statefun.sdk.stateful_function import StatefulFunction
from statefun.testing.leaving import ChoosingRunner

KEY = b"Ada\0t/f"
MESSAGE = ("t/v", b"value")
OUT = (
    KafkaEgress.for_id("t/out")
    .with_kafka_address("localhost:1")
    .with_option("deadLetterTopic", "dead")
    .build()
)


@attrs.define
class Reporter:
    """Keeps reports."""

    worker: str = "worker"
    results: list[bytes | None] = attrs.field(factory=list)

    def open(self) -> bool:
        """Return True."""
        return True

    def report(self, _key: bytes, _attempt: str, result: bytes | None) -> None:
        """Keep a report."""
        self.results.append(result)

    def left(self, _attempt: str) -> Future[bool]:
        """Say that the micro-batch is staged."""
        return finished(True)

    def begun(self, _attempt: str) -> Future[None]:
        """Return a future that is done: no call was lost before."""
        return finished(None)

    def accompanied(self, _attempt: str) -> Future[None]:
        """Return a future that is done: no call was lost before."""
        return self.begun(_attempt)

    def wait(self) -> None:
        """Do nothing: reports are kept at once."""


def choosing(*, leaves: Callable[[], bool]) -> ChoosingRunner:
    """Return a runner whose calls leave or not."""
    return ChoosingRunner(leaves, lambda: 1000, lambda: False)


def registry(fun: Any, **options: Any) -> StatefulFunctions:
    """Return a registry with one function."""
    functions = StatefulFunctions()
    functions.register("t/f", fun, **{"on_failure": OnFailure.SKIP, **options})
    return functions


def dispatch(
    functions: StatefulFunctions,
    runner: CallRunner,
    rows: list[tuple[str, bytes]],
    state: bytes | None = None,
    *,
    turn: Turn | None = None,
    effects: Effects | None = None,
    clock: Clock = SystemClock(),  # noqa: B008 - it has no state
) -> tuple[AddressValues, Dispatcher]:
    """Run a micro-batch with messages to an address; return what the address keeps."""
    typenames, values = zip(*rows, strict=True)
    nothing = [None] * len(rows)
    columns = Columns(nothing, typenames, values, nothing, [0] * len(rows), cell=lambda *_: None)
    dispatcher = Dispatcher(
        Program.of(functions, Module((), (OUT,))),
        BatchClock(clock, clock.now()),
        batch=1,
        delivered_up_to=0,
        concurrency=10,
        immediate=10,
        turn=turn,
        runner=runner,
    )
    group = Group(KEY, columns, 0, len(rows), AddressValues(state))
    [_] = dispatcher.dispatch([group], Effects() if effects is None else effects)
    return group.values, dispatcher


def test_a_call_that_has_left_keeps_no_rows() -> None:
    """Those of a whole Arrow batch would stay in memory as long as one of its calls."""
    release, references = threading.Event(), []

    async def slow(_ctx: Context, _message: Message) -> None:
        await asyncio.to_thread(release.wait)

    class Watched(Columns):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            references.append(weakref.ref(self))

    calls = LeavingCalls(Reporter(), 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(dispatch.__globals__, "Columns", Watched)
        values, _ = dispatch(
            registry(slow, detach_after=timedelta(0)), calls, [MESSAGE, ("t/v", b"other")]
        )
    gc.collect()
    rows_are_gone = references[0]() is None
    release.set()
    calls.wait()

    assert values.under_way is not None
    assert rows_are_gone


def test_messages_whose_effects_are_too_large_fail_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The address would wait for ever for a result that cannot be reported."""
    monkeypatch.setattr(left_calls, "MOST_RESULT_BYTES", 1000)

    async def sends(ctx: Context, message: Message) -> None:
        ctx.send(Message("t/f", "Bob", message.typed_value))

    runner, functions = choosing(leaves=lambda: True), registry(sends)
    large = ("t/v", bytes(2000))
    with caplog.at_level(logging.WARNING, "statefun"):
        values, _ = dispatch(functions, runner, [MESSAGE, large])
    [report] = runner.take()
    values, _ = dispatch(
        functions, runner, [(LOST, encoded_loss(report.attempt, has_begun=True))], values.encoded()
    )
    [first] = runner.take()
    values, _ = dispatch(functions, runner, [(RESULT, first.result or b"")], values.encoded())
    [second] = runner.take()
    values, dispatcher = dispatch(
        functions, runner, [(RESULT, second.result or b"")], values.encoded()
    )

    assert report.result is None
    assert "2,0" in caplog.text
    assert not CallResult.FromString(first.result or b"").failures
    assert dispatcher.summary().skipped == 1
    assert values.encoded() is None


def test_only_losses_in_a_row_count() -> None:
    """A call that has ended in between, in time, ends the row."""
    is_slow = True

    async def called(_ctx: Context, _message: Message) -> None:
        pass

    runner, functions = choosing(leaves=lambda: is_slow), registry(called)
    values, _ = dispatch(functions, runner, [MESSAGE] * 3)
    for _ in range(2):
        [report] = runner.take()
        is_slow = values.lost == 0
        lost = [(LOST, encoded_loss(report.attempt, has_begun=True))]
        values, _ = dispatch(functions, runner, lost, values.encoded())

    assert values.waiting
    assert values.lost == 0


def test_a_message_whose_call_ends_its_process_again_and_again_fails() -> None:
    """A loss counts if the call has run; the first one always does, as the call had no reason to wait."""

    async def called(_ctx: Context, _message: Message) -> None:
        pass

    runner, functions = choosing(leaves=lambda: True), registry(called)
    values, dispatcher = dispatch(functions, runner, [MESSAGE] * 3)
    counts = []
    for has_begun in [False, True, False, False, True, True]:
        [report] = runner.take()
        lost = [(LOST, encoded_loss(report.attempt, has_begun=has_begun))]
        values, dispatcher = dispatch(functions, runner, lost, values.encoded())
        counts.append((values.lost, dispatcher.summary().skipped))

    assert counts == [(1, 0), (2, 0), (2, 0), (2, 0), (3, 0), (0, 1)]
    assert values.under_way is not None
    assert len(values.under_way.messages) == 2  # the others, without losses


def test_a_call_that_is_lost_with_its_run_is_made_again_without_blame() -> None:
    """It waits until the new run says so: other messages do not make it forget how it was lost."""

    async def called(_ctx: Context, _message: Message) -> None:
        pass

    runner, functions = choosing(leaves=lambda: True), registry(called)
    values, _ = dispatch(functions, runner, [MESSAGE])
    runner.take()  # the run ends
    values, _ = dispatch(functions, runner, [MESSAGE], values.encoded())
    under_way, calls = values.under_way, runner.take()
    assert under_way is not None
    loss = encoded_loss(under_way.attempt, has_begun=True, has_ended=False)
    values, _ = dispatch(functions, runner, [(LOST, loss)], values.encoded())

    assert not calls
    assert runner.take()
    assert values.lost == 0


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_dead_letter_says_since_when_its_call_went_on(*, is_lost: bool) -> None:
    """Whether the function has failed, or its call was lost once too often."""

    async def fails(_ctx: Context, _message: Message) -> None:
        raise ValueError("no")

    functions = registry(fails, on_failure=OnFailure.DEAD_LETTER)
    runner, effects = choosing(leaves=lambda: True), Effects()
    values, _ = dispatch(functions, runner, [MESSAGE])
    while values.under_way is not None:
        since, [report] = values.under_way.since, runner.take()
        lost = (LOST, encoded_loss(report.attempt, has_begun=True))
        row = lost if is_lost else (RESULT, report.result or b"")
        values, _ = dispatch(functions, runner, [row], values.encoded(), effects=effects)

    [(_, _, _, [headers_of_letter], *_)] = effects.egress[str(OUT.id)].take()
    headers = dict(headers_of_letter)
    assert headers["statefun-long-call-since"] == b"%d" % since


def test_a_value_does_not_expire_while_a_call_goes_on_with_it() -> None:
    """It expires some time after calls, and this one came in time."""

    async def counts(ctx: Context, _message: Message) -> None:
        ctx.storage.count = ctx.storage.count or 1

    lifetime = timedelta(milliseconds=20)
    spec = ValueSpec("count", IntType, expire_after_call=lifetime)
    is_slow = False
    runner, functions = choosing(leaves=lambda: is_slow), registry(counts, specs=[spec])
    stored, _ = dispatch(functions, runner, [MESSAGE])
    is_slow = True
    values, _ = dispatch(functions, runner, [MESSAGE], stored.encoded())
    [report] = runner.take()
    time.sleep(0.05)
    wake_up = (WAKE_UP, b"%d" % SystemClock().now())
    values, _ = dispatch(functions, runner, [wake_up], values.encoded())
    during = dict(values.values)
    values, _ = dispatch(functions, runner, [(RESULT, report.result or b"")], values.encoded())
    after = dict(values.values)
    time.sleep(0.05)
    values, _ = dispatch(functions, runner, [wake_up], values.encoded())

    assert during == after == stored.values
    assert during
    assert not values.values


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_value_expires_after_a_call_during_which_its_wake_up_came(*, is_lost: bool) -> None:
    """The end of the call sends another wake-up, also if the call was lost once too often."""

    async def counts(ctx: Context, _message: Message) -> None:
        if ctx.storage.count is None:
            ctx.storage.count = 1

    spec = ValueSpec("count", IntType, expire_after_write=timedelta(milliseconds=20))
    is_slow, clock = False, SetClock()
    runner, functions = choosing(leaves=lambda: is_slow), registry(counts, specs=[spec])
    values, _ = dispatch(functions, runner, [MESSAGE], clock=clock)
    is_slow = True
    values, _ = dispatch(functions, runner, [MESSAGE], values.encoded(), clock=clock)
    [report] = runner.take()
    wake_up = (WAKE_UP, b"%d" % AddressState.FromString(values.encoded() or b"").wake[-1])
    during, after = Effects(), Effects()
    values, _ = dispatch(
        functions, runner, [wake_up], values.encoded(), effects=during, clock=clock
    )
    while values.under_way is not None:
        lost = (LOST, encoded_loss(values.under_way.attempt, has_begun=True))
        row = lost if is_lost else (RESULT, report.result or b"")
        values, _ = dispatch(functions, runner, [row], values.encoded(), effects=after, clock=clock)
    was_there = bool(values.values)
    clock.time += 1000
    wake_up = (WAKE_UP, b"%d" % AddressState.FromString(values.encoded() or b"").wake[-1])
    values, _ = dispatch(functions, runner, [wake_up], values.encoded(), clock=clock)

    assert not during.buckets
    assert was_there
    assert after.buckets
    assert values.encoded() is None


def test_an_address_with_a_long_call_sends_itself_nothing() -> None:
    """The driver tells it when the call is over, or lost; until then it costs nothing."""

    async def nothing(_ctx: Context, _message: Message) -> None:
        pass

    runner, functions, effects = choosing(leaves=lambda: True), registry(nothing), Effects()
    values, _ = dispatch(functions, runner, [MESSAGE], effects=effects)
    values, _ = dispatch(functions, runner, [MESSAGE], values.encoded(), effects=effects)
    under_way, waiting = values.under_way, values.waiting
    [report] = runner.take()
    row = (RESULT, report.result or b"")
    values, _ = dispatch(functions, runner, [row], values.encoded(), effects=effects)

    assert under_way is not None
    assert len(waiting) == 1
    assert values.under_way is not None  # the second message
    assert not effects.buckets
    assert not effects.messages


class Elsewhere(Transport):
    """An endpoint that answers."""

    async def admit(self, *_: object) -> None:
        """Take each call."""

    async def invoke(self, _batch: InvocationBatch, _prepare: object) -> InvocationResult:
        """Handle all messages."""
        return InvocationResult({}, [], [], [], [])

    def server_of(self, _target: Address) -> str:
        """Return the server of all addresses."""
        return "server"

    def take_circuit_reports(self) -> list[Any]:
        """Return nothing."""
        return []


def test_the_driver_learns_where_calls_go_on_and_who_had_the_turn() -> None:
    """A call of a function of the process goes on at no server."""
    functions = StatefulFunctions()
    functions.add(StatefulFunction(TypeName("t", "f"), (), {}, transport=Elsewhere()))
    turn = Turn(Address("t/f", "Ada"), "server")

    _, first = dispatch(functions, choosing(leaves=lambda: True), [MESSAGE])
    _, second = dispatch(functions, choosing(leaves=lambda: False), [MESSAGE], turn=turn)
    _, third = dispatch(
        functions, choosing(leaves=lambda: False), [MESSAGE], turn=turn._replace(waits=True)
    )
    left, called, waited = (each.summary() for each in (first, second, third))

    assert [each.server for each in left.detached] == ["server"]
    assert not left.has_taken_turn
    assert called.has_taken_turn
    assert not waited.has_taken_turn


def test_a_suspect_does_not_leave_in_its_turn() -> None:
    """Its server would be called for others before it has shown whether the suspect ends it."""
    functions = StatefulFunctions()
    functions.add(StatefulFunction(TypeName("t", "f"), (), {}, transport=Elsewhere()))
    turn = Turn(Address("t/f", "Ada"), "server")
    runner = choosing(leaves=lambda: True)

    left, _ = dispatch(functions, runner, [MESSAGE])
    stays, _ = dispatch(functions, runner, [MESSAGE], turn=turn)

    assert left.under_way is not None
    assert stays.under_way is None
