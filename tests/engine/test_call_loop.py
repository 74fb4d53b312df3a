# SPDX-License-Identifier: Apache-2.0
"""The event loop of a worker process: calls that end in time, calls that leave, and the keeper."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, cast

import attrs
import pytest
from finished_futures import finished
from harness import wait

from statefun import Context, Message, StatefulFunctions
from statefun.engine import call_loop
from statefun.engine.call_loop import LeavingCalls
from statefun.engine.running_calls import AbandonedError, Left, RunningCall

BRIEF, LONG = timedelta(milliseconds=20), timedelta(minutes=1)


@attrs.define
class Reporter:
    """Keeps reports."""

    worker: str = "worker"
    is_open: bool = True
    results: list[object] = attrs.field(factory=list)
    again: list[str] = attrs.field(factory=list)
    is_staged: bool = True
    asked: list[str] = attrs.field(factory=list)
    """The names of calls that have asked whether their micro-batch is staged."""

    def open(self) -> bool:
        """Return what was set."""
        return self.is_open

    def report(self, key: bytes, attempt: str, result: bytes | None) -> None:
        """Keep a report, and the thread that it comes from."""
        self.results.append((key, attempt, result, threading.current_thread().name))

    def left(self, attempt: str) -> Future[bool]:
        """Say what was set."""
        self.asked.append(attempt)
        answer = Future[bool]()
        answer.set_result(self.is_staged)
        return answer

    def begun(self, attempt: str) -> Future[None]:
        """Keep the name of a call that has begun again."""
        self.again.append(attempt)
        return finished(None)

    def accompanied(self, attempt: str) -> Future[None]:
        """Return a future that is done: reports are kept at once."""
        return finished(None)

    def wait(self) -> None:
        """Do nothing: reports are kept at once."""


@pytest.fixture
def reports() -> Reporter:
    """Return where reports go."""
    return Reporter()


@pytest.fixture
def calls(reports: Reporter) -> LeavingCalls:
    """Return the calls of a process, of which two may leave."""
    return LeavingCalls(reports, 2)


def call(
    calls: LeavingCalls, run: Callable[[], Coroutine[Any, Any, object]], patience: timedelta = BRIEF
) -> Callable[[RunningCall], Coroutine[Any, Any, object]]:
    """Return a call that runs a coroutine, and reports its result if it has left."""

    async def begin(running: RunningCall) -> object:
        running.take(cast("Any", object()))  # nobody looks at it
        calls.begin(running, "t/f", patience)
        calls.started(running)
        result = await run()
        calls.end(running, 1)
        if running.attempt:
            calls.report(b"key", running.attempt, str(result).encode())
        return result

    return begin


async def last(calls: LeavingCalls, time: timedelta) -> None:
    """Wait for a time in the ticks by which calls are judged: on a busy machine they come late."""
    ticks = calls._ticks  # noqa: SLF001 - nobody else needs them
    begun = ticks.count
    while ticks.since(begun) < time:  # noqa: ASYNC110 - ticks set no event
        await asyncio.sleep(0.001)


def attempts(outcomes: list[Any]) -> list[str]:
    """Return the names of calls that have left."""
    return [each.attempt for each in outcomes if isinstance(each, Left)]


def test_calls_that_end_in_time_do_not_leave(calls: LeavingCalls) -> None:
    """Their outcomes come in their order, however many run at a time."""

    def after(number: int) -> Callable[[], Coroutine[Any, Any, int]]:
        async def run() -> int:
            await asyncio.sleep(0.001 * (5 - number))
            return number

        return run

    for limit in (1, 2, 10):
        begins = [call(calls, after(number), LONG) for number in range(5)]
        assert calls.run(begins, limit) == [0, 1, 2, 3, 4]


def test_calls_that_never_wait_do_not_leave_although_a_busy_loop_is_slow(
    calls: LeavingCalls,
) -> None:
    """Even if their micro-batch should not wait for them at all, they get their turns on the loop."""

    async def run() -> None:
        time.sleep(0.001)  # noqa: ASYNC251 - computes for a while
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert not attempts(calls.run([call(calls, run, timedelta(0))] * 50, 50))


def test_an_exception_is_the_outcome_of_its_call_alone(calls: LeavingCalls) -> None:
    """Others end as they would."""

    async def fails() -> None:
        raise ValueError("no")

    async def ends() -> int:
        return 1

    failed, ended = calls.run([call(calls, fails), call(calls, ends)], 10)

    assert isinstance(failed, ValueError)
    assert ended == 1


def test_a_call_that_takes_long_leaves_and_ends_without_anybody_waiting(
    calls: LeavingCalls, reports: Reporter
) -> None:
    """The keeper's thread goes on with it, and its result is reported."""
    release = threading.Event()

    async def slow() -> int:
        await asyncio.to_thread(release.wait)
        return 7

    outcomes = calls.run([call(calls, slow)], 10)
    release.set()
    calls.wait()

    [attempt] = attempts(outcomes)
    assert attempt.startswith("worker-")
    assert reports.results == [(b"key", attempt, b"7", "statefun event loop")]


def test_a_call_that_has_left_goes_on_during_later_micro_batches(
    calls: LeavingCalls, reports: Reporter
) -> None:
    """The main thread runs it beside its own calls, and the keeper before and after."""
    steps: list[str] = []
    release = threading.Event()

    async def slow() -> None:
        while not release.is_set():
            steps.append(threading.current_thread().name)
            await asyncio.sleep(0.001)

    async def brief() -> str:
        await asyncio.sleep(0.02)
        return "brief"

    calls.run([call(calls, slow)], 10)
    wait(lambda: "statefun event loop" in steps)
    steps.clear()
    outcome = calls.run([call(calls, brief, LONG)], 10)
    during = {*steps}
    steps.clear()
    wait(lambda: "statefun event loop" in steps)
    release.set()
    calls.wait()

    assert outcome == ["brief"]
    assert threading.main_thread().name in during
    assert len(reports.results) == 1


def test_no_more_calls_leave_than_may(calls: LeavingCalls) -> None:
    """A micro-batch waits for the others."""

    async def slow() -> int:
        await last(calls, BRIEF * 5)
        return 1

    outcomes = calls.run([call(calls, slow) for _ in range(4)], 10)

    assert len(attempts(outcomes)) == 2
    assert outcomes.count(1) == 2
    calls.wait()


def test_no_call_leaves_without_anybody_to_report_to(
    calls: LeavingCalls, reports: Reporter
) -> None:
    """A micro-batch waits for its calls as long as the driver cannot be reached."""
    reports.is_open = False

    async def slow() -> int:
        await last(calls, BRIEF * 5)
        return 1

    assert calls.run([call(calls, slow)], 10) == [1]


def test_a_function_that_mostly_leaves_is_not_waited_for(calls: LeavingCalls) -> None:
    """After some such calls the next one leaves long before its patience is over."""

    async def slow() -> None:
        await last(calls, BRIEF * 3)

    for _ in range(5):
        calls.run([call(calls, slow)], 10)
        calls.wait()

    assert attempts(calls.run([call(calls, slow, LONG)], 10))
    calls.wait()


def test_a_call_that_stops_the_loop_or_asks_for_the_end_harms_no_other(
    calls: LeavingCalls, reports: Reporter
) -> None:
    """Neither the keeper nor a later micro-batch ends by it."""

    async def stops() -> None:
        await last(calls, BRIEF * 3)
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.05)

    async def brief() -> int:
        return 1

    calls.run([call(calls, stops)], 10)
    wait(lambda: bool(reports.results))

    assert calls.run([call(calls, brief)], 10) == [1]


def test_a_call_that_ends_when_it_would_leave_has_its_outcome(
    calls: LeavingCalls, reports: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the calls may come between the end of a call and the notice of its end."""
    monkeypatch.setattr(calls, "is_late", lambda _: True)
    turn: list[asyncio.Future[int]] = []

    async def ends() -> int:
        turn.append(asyncio.get_running_loop().create_future())
        return await turn[0]

    async def blocks() -> int:
        turn[0].set_result(1)
        time.sleep(0.1)  # noqa: ASYNC251 - the look at the calls comes right after it
        return 2

    outcomes = calls.run([call(calls, ends), call(calls, blocks)], 10)

    assert (outcomes, reports.results) == ([1, 2], [])


def test_a_micro_batch_may_begin_while_the_keeper_is_about_to_return(calls: LeavingCalls) -> None:
    """The last call has ended, and something else still holds up the loop."""
    release = threading.Event()

    async def slow() -> None:
        await asyncio.to_thread(release.wait)
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: time.sleep(0.2))

    async def brief() -> int:
        return 1

    calls.run([call(calls, slow)], 10)
    release.set()
    calls.wait()

    assert calls.run([call(calls, brief)], 10) == [1]


def test_a_function_that_answers_in_time_again_is_waited_for_again(calls: LeavingCalls) -> None:
    """Although its calls leave, as they were not waited for."""
    slow, brief = timedelta(milliseconds=200), timedelta(milliseconds=40)
    patience = timedelta(milliseconds=100)
    for _ in range(5):
        calls.run([call(calls, partial(last, calls, slow), patience)], 10)
        calls.wait()
    outcomes = []
    for _ in range(8):
        outcomes += calls.run([call(calls, partial(last, calls, brief), patience)], 10)
        calls.wait()

    assert attempts(outcomes[:1])
    assert outcomes[-1] is None


def test_a_function_has_no_more_calls_at_a_time_than_it_allows(calls: LeavingCalls) -> None:
    """Also calls that have left keep their places, until they end."""
    functions = StatefulFunctions()

    @functions.bind("t/f", max_in_flight=2)
    async def limited(ctx: Context, message: Message) -> None:
        pass

    function, present, most = functions.for_typename("t/f"), 0, 0

    async def run() -> None:
        nonlocal present, most
        async with calls.place(function, RunningCall()):
            present += 1
            most = max(most, present)
            await asyncio.sleep(0.05)
            present -= 1

    calls.run([call(calls, run, BRIEF if index < 2 else LONG) for index in range(6)], 10)
    calls.wait()

    assert (present, most) == (0, 2)


def test_the_time_for_which_a_call_waits_for_its_place_is_not_its_own(calls: LeavingCalls) -> None:
    """Else a function with many calls would get fewer and fewer messages at a time, and each call would be over."""
    functions = StatefulFunctions()

    @functions.bind("t/f", max_in_flight=1)
    async def limited(ctx: Context, message: Message) -> None:
        pass

    function, have_been_over = functions.for_typename("t/f"), list[bool]()

    async def begin(running: RunningCall) -> None:
        calls.begin(running, "t/f", LONG)
        async with calls.place(function, running):
            is_over = calls.started(running)
            assert is_over is not None
            have_been_over.append(is_over())
            await last(calls, timedelta(milliseconds=200))
        calls.end(running, 1)

    assert calls.run([begin] * 8, 10) == [None] * 8
    assert have_been_over == [False] * 8
    assert (calls.most("t/f") or 0) > 1


def test_a_call_that_was_lost_before_runs_after_it_has_left(
    calls: LeavingCalls, reports: Reporter
) -> None:
    """If it ends the process again, no micro-batch fails, and the driver knows that the call has run."""
    function = StatefulFunctions()

    @function.bind("t/f")
    async def again(ctx: Context, message: Message) -> None:
        pass

    seen: list[tuple[str, list[str]]] = []

    async def begin(running: RunningCall) -> None:
        running.take(cast("Any", object()))
        running.losses = 1
        calls.begin(running, "t/f", LONG)
        async with calls.place(function.for_typename("t/f"), running):
            seen.append((running.attempt, [*reports.again]))
        calls.end(running, 1)

    [name] = attempts(calls.run([begin], 1))
    calls.wait()

    assert seen == [(name, [name])]


def test_a_call_of_a_task_that_does_not_count_does_not_run(
    calls: LeavingCalls, reports: Reporter
) -> None:
    """It could end its process, and nobody would know that it was the reason."""
    reports.is_staged = False
    functions = StatefulFunctions()

    @functions.bind("t/f")
    async def again(ctx: Context, message: Message) -> None:
        pass

    ended: list[type[BaseException]] = []

    async def begin(running: RunningCall) -> None:
        running.take(cast("Any", object()))
        running.losses = 1
        calls.begin(running, "t/f", LONG)
        try:
            async with calls.place(functions.for_typename("t/f"), running):
                ended.append(AssertionError)
        except AbandonedError as error:
            ended.append(type(error))

    [_] = attempts(calls.run([begin], 1))
    calls.wait()

    assert ended == [AbandonedError]
    assert reports.again == []


@pytest.mark.parametrize("now", ["", "successor"])
def test_a_call_that_was_given_up_while_it_waited_does_not_run(
    calls: LeavingCalls, reports: Reporter, now: str
) -> None:
    """When its connection ends, the driver lets the call be made again: it would run twice at a time."""
    functions = StatefulFunctions()

    @functions.bind("t/f", max_in_flight=1)
    async def again(ctx: Context, message: Message) -> None:
        pass

    function, free, ended = functions.for_typename("t/f"), asyncio.Event(), list[str]()

    async def holds(running: RunningCall) -> None:
        async with calls.place(function, running):
            await free.wait()

    async def begin(running: RunningCall) -> None:
        running.take(cast("Any", object()))
        running.losses = 1
        calls.begin(running, "t/f", LONG)
        try:
            async with calls.place(function, running):
                ended.append("run")
        except AbandonedError:
            ended.append("given up")

    async def gives_up(_running: RunningCall) -> None:
        while not reports.asked:  # noqa: ASYNC110 - reports set no event
            await asyncio.sleep(0.001)
        reports.worker = now
        free.set()

    calls.run([holds, begin, gives_up], 3)
    calls.wait()

    assert (ended, reports.again) == (["given up"], [])


def test_a_call_that_was_lost_before_runs_even_if_it_cannot_leave(
    calls: LeavingCalls, reports: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a connection to the driver, the micro-batch waits for it."""
    monkeypatch.setattr(call_loop, "_PATIENCE", BRIEF)
    reports.is_open = False
    functions = StatefulFunctions()

    @functions.bind("t/f")
    async def again(ctx: Context, message: Message) -> None:
        pass

    async def begin(running: RunningCall) -> int:
        running.take(cast("Any", object()))
        running.losses = 3
        calls.begin(running, "t/f", LONG)
        async with calls.place(functions.for_typename("t/f"), running):
            return 1

    assert calls.run([begin], 1) == [1]
    assert reports.again == []
