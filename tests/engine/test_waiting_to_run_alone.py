# SPDX-License-Identifier: Apache-2.0
"""A call that wants to be alone, and a micro-batch whose coroutine waits for it while it waits for the micro-batch."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta

import attrs
import pytest
from engine.test_running_alone import NOW, Driver
from harness import wait

from statefun import Context, Message, StatefulFunctions, StringType
from statefun.engine import call_limits
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

    def run(*keys: bytes, lost: int = 0) -> None:
        dispatcher = Dispatcher(
            Program(functions, {}),
            BatchClock(StoppedClock(NOW), NOW),
            batch=1,
            delivered_up_to=0,
            concurrency=10,
            immediate=0,
            runner=calls,
        )
        groups = []
        for key in keys:
            rows = [MessageRow(key, None, StringType.typename, b"")]
            values = AddressValues(None)
            values.count_lost(lost)
            groups.append(Group(key, columns_of(rows), 0, 1, values))
        with calls.plain_calls():
            for _ in dispatcher.dispatch(groups, Effects()):
                pass

    run(b"x\0t/long", lost=MOST_LOST - 1)
    run(b"y\0t/plain", b"z\0t/patient")
    calls.wait()

    assert counted == [True]
