# SPDX-License-Identifier: Apache-2.0
"""What else runs in a process while a call runs alone that was lost several times."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import timedelta

import attrs
import pytest
from finished_futures import finished
from harness import wait

from statefun import Context, Message, StatefulFunctions, StringType
from statefun.engine import call_limits, call_loop
from statefun.engine.address_values import AddressValues
from statefun.engine.call_limits import Company
from statefun.engine.call_loop import LeavingCalls
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.left_calls import MOST_LOST
from statefun.engine.program import Program
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.micro_batch import StoppedClock

NOW = 1_000_000


@attrs.define
class Driver:
    """What the driver knows of the calls of the process."""

    worker: str = "worker"
    alone: set[str] = attrs.field(factory=set)
    """The calls that would be blamed if the process ended now."""

    def open(self) -> bool:
        """Return that the driver is there."""
        return True

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Record that a call has ended."""
        del key, result
        self.alone.discard(attempt)

    def left(self, attempt: str) -> Future[bool]:
        """Say that the micro-batch of a call is staged."""
        del attempt
        return finished(True)

    def begun(self, attempt: str) -> Future[None]:
        """Keep that a call runs now."""
        self.alone.add(attempt)
        return finished(None)

    def accompanied(self, attempt: str) -> Future[None]:
        """Keep that a call is not alone any more."""
        self.alone.discard(attempt)
        return finished(None)

    def wait(self) -> None:
        """Do nothing: reports are kept at once."""


def test_no_plain_function_runs_beside_a_call_that_would_be_blamed() -> None:
    """It waits for the end of the call: if it ended the process, the call would seem to be the reason."""
    driver, may_end, beside = Driver(), threading.Event(), list[set[str]]()
    functions = StatefulFunctions()

    @functions.bind("t/long")
    async def long(_ctx: Context, _message: Message) -> None:
        await asyncio.to_thread(may_end.wait)

    @functions.bind("t/plain")
    def plain(_ctx: Context, _message: Message) -> None:
        beside.append({*driver.alone})

    calls = LeavingCalls(driver, 10)
    _run(
        functions,
        calls,
        MessageRow(b"x\0t/long", None, StringType.typename, b""),
        lost=MOST_LOST - 1,
    )
    wait(lambda: bool(driver.alone))  # it runs alone now
    row = MessageRow(b"y\0t/plain", None, StringType.typename, b"")
    task = threading.Thread(target=_run, args=(functions, calls, row))
    task.start()
    while_alone = [*beside]
    may_end.set()
    task.join()
    calls.wait()

    assert while_alone == []
    assert beside == [set()]


def test_a_call_is_not_alone_before_plain_functions_have_ended() -> None:
    """A plain function that runs already is waited for."""
    driver, company = Driver(), Company()
    functions, seen = StatefulFunctions(), list[bool]()

    @functions.bind("t/long")
    async def long(_ctx: Context, _message: Message) -> None:
        seen.append(plain_runs.is_set())

    plain_runs, may_end = threading.Event(), threading.Event()

    def plain() -> None:
        with company.plain_calls():
            plain_runs.set()
            may_end.wait()
            plain_runs.clear()

    task = threading.Thread(target=plain)
    task.start()
    plain_runs.wait()
    calls = LeavingCalls(driver, 10, company)
    row = MessageRow(b"x\0t/long", None, StringType.typename, b"")
    _run(functions, calls, row, lost=MOST_LOST - 1, holds=False)
    before = [*seen]
    may_end.set()
    calls.wait()
    task.join()

    assert before == []
    assert seen == [False]


def _run(
    functions: StatefulFunctions,
    calls: LeavingCalls,
    *rows: MessageRow,
    lost: int = 0,
    holds: bool = True,
) -> None:
    """Run a micro-batch with a row for each of some addresses, which have lost so many calls in a row."""
    dispatcher = Dispatcher(
        Program(functions, {}),
        BatchClock(StoppedClock(NOW), NOW),
        batch=1,
        delivered_up_to=0,
        concurrency=10,
        immediate=0,
        runner=calls,
    )
    groups = [Group(row.target, columns_of([row]), 0, 1, AddressValues(None)) for row in rows]
    for group in groups:
        group.values.count_lost(lost)
    with calls.plain_calls() if holds else nullcontext():
        for _ in dispatcher.dispatch(groups, Effects()):
            pass


@attrs.define
class UnreachableDriver(Driver):
    """A driver to which the process has no connection: micro-batches wait for all of its calls."""

    worker: str = ""

    def open(self) -> bool:
        """Return that the driver is not there."""
        return False


def test_calls_that_cannot_leave_do_not_wait_to_run_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their own micro-batch waits for them, and holds the place of plain functions meanwhile."""
    monkeypatch.setattr(call_loop, "_PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr(call_limits, "MOST_ALONE", timedelta(seconds=1))
    functions, calls = StatefulFunctions(), LeavingCalls(UnreachableDriver(), 10)
    begun, together = list[str](), list[int]()

    @functions.bind("t/long")
    async def long(ctx: Context, _message: Message) -> None:
        begun.append(ctx.address.id)
        await asyncio.sleep(0.5)
        together.append(len(begun))

    rows = [MessageRow(b"%d\0t/long" % n, None, StringType.typename, b"") for n in range(3)]
    _run(functions, calls, *rows, lost=MOST_LOST - 1)

    assert together == [3, 3, 3]


@attrs.define
class SlowDriver(Driver):
    """A driver that answers later that a micro-batch is staged."""

    answer: Future[bool] = attrs.field(factory=Future)

    def left(self, attempt: str) -> Future[bool]:
        """Say later that the micro-batch of a call is staged."""
        del attempt
        return self.answer


def test_a_call_runs_alone_after_a_micro_batch_whose_coroutine_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it would be found if it ended the process: both would otherwise wait until its time is over."""
    monkeypatch.setattr(call_limits, "MOST_ALONE", timedelta(seconds=3))
    driver, company, functions = SlowDriver(), Company(), StatefulFunctions()
    calls, counted = LeavingCalls(driver, 10, company), list[bool]()

    @functions.bind("t/long")
    async def long(_ctx: Context, _message: Message) -> None:
        counted.append(bool(driver.alone))

    @functions.bind("t/plain")
    def plain(_ctx: Context, _message: Message) -> None:
        driver.answer.set_result(True)  # the micro-batch before this one is staged
        wait(lambda: company._holds_plain)  # noqa: SLF001 - the other call waits until it is alone

    @functions.bind("t/patient", detach_after=timedelta(hours=1))
    async def patient(_ctx: Context, _message: Message) -> None:
        pass

    def message(key: bytes) -> MessageRow:
        return MessageRow(key, None, StringType.typename, b"")

    _run(functions, calls, message(b"x\0t/long"), lost=MOST_LOST - 1)
    _run(functions, calls, message(b"y\0t/plain"), message(b"z\0t/patient"))
    calls.wait()

    assert counted == [True]
