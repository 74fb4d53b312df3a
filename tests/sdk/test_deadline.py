# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from statefun import (
    Address,
    Context,
    DefinitionError,
    FunctionError,
    IntType,
    Message,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.sdk import deadline
from statefun.sdk.deadline import Alarm, standby
from statefun.sdk.encoding import typed
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import Invocation, InvocationBatch, InvocationResult
from statefun.sdk.log_limits import LogLimit

TARGET = Address("t", "hangs", "Ada")
SOON = timedelta(milliseconds=200)
HANG = 2
"""The message on which functions hang."""
WARNING = "function t/hangs at address t/hangs/Ada has taken half of its timeout of"


@pytest.fixture(autouse=True)
def warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the warnings of other tests not count for a test's limit."""
    monkeypatch.setattr(deadline, "_warnings", LogLimit(timedelta(hours=1)))


def _invoke(
    fun: Callable[[Context, Message], Any],
    *numbers: int,
    timeout: timedelta | None = SOON,
) -> InvocationResult:
    functions = StatefulFunctions()
    functions.register(TARGET.typename, fun, [ValueSpec("count", IntType)], timeout=timeout)
    function = functions.for_typename(TARGET.typename)
    invocations = [Invocation(None, typed(number, IntType)) for number in numbers]
    batch = InvocationBatch(TARGET, {}, invocations)
    if function.is_async:
        return asyncio.run(invoke_async(function, batch))
    return invoke(function, batch)


def _count(ctx: Context, message: Message) -> None:
    ctx.storage.count = (ctx.storage.count or 0) + message.as_int()
    ctx.send(message_builder("t/f", "x", int_value=message.as_int()))


def _sleep(ctx: Context, message: Message) -> None:
    _count(ctx, message)
    if message.as_int() == HANG:
        time.sleep(60)


def _spin(ctx: Context, message: Message) -> None:
    _count(ctx, message)
    while message.as_int() == HANG:
        pass


def _stubborn(ctx: Context, message: Message) -> None:
    _count(ctx, message)
    for _ in range(3 if message.as_int() == HANG else 0):
        with suppress(BaseException):
            time.sleep(60)


async def _wait(ctx: Context, message: Message) -> None:
    _count(ctx, message)
    if message.as_int() == HANG:
        await asyncio.sleep(60)


async def _block(ctx: Context, message: Message) -> None:
    _sleep(ctx, message)


async def _busy(ctx: Context, message: Message) -> None:
    await asyncio.sleep(0)
    _spin(ctx, message)


async def _swallow(ctx: Context, message: Message) -> None:
    try:
        await _wait(ctx, message)
    except asyncio.CancelledError:
        ctx.storage.count = 1000


@pytest.mark.parametrize("fun", [_sleep, _spin, _wait, _swallow, _block, _busy])
def test_a_call_that_hangs_is_a_failure(
    fun: Callable[[Context, Message], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It is ended and leaves no trace; at half of the time a warning says who it is."""
    with caplog.at_level(logging.WARNING, "statefun"):
        result = _invoke(fun, 1, HANG, 3, timeout=timedelta(seconds=1))

    (failed,) = result.failures
    assert (failed.index, failed.cause) == (1, "TimeoutError")
    assert failed.error.message == (
        "function t/hangs failed at address t/hangs/Ada: TimeoutError: the call took longer than "
        "its timeout of 0:00:01"
    )
    assert result.state_mutations == {"count": typed(4, IntType)}
    assert [message.as_int() for message in result.messages] == [1, 3]
    assert caplog.messages == [f"{WARNING} 0:00:01, at which it is interrupted"]


@pytest.mark.parametrize("fun", [_sleep, _wait])
@pytest.mark.parametrize("timeout", [timedelta(microseconds=1), timedelta.max])
def test_the_limit_is_as_short_or_long_as_can_be(
    fun: Callable[[Context, Message], Any], timeout: timedelta
) -> None:
    """A microsecond is too short to sleep, and the age of the universe is never over."""
    hangs = timeout < SOON

    failures = _invoke(fun, HANG if hangs else 1, timeout=timeout).failures

    assert [failed.cause for failed in failures] == ["TimeoutError"] * hangs


@pytest.mark.parametrize("fun", [_sleep, _spin, _wait, _block, _busy])
def test_the_traceback_says_where_it_hung(fun: Callable[[Context, Message], Any]) -> None:
    """The traceback has the last frame of the user's code."""
    (failed,) = _invoke(fun, HANG).failures

    assert f"in {fun.__name__}" in failed.traceback


def test_a_plain_function_that_swallows_interruptions_gets_more_of_them() -> None:
    """It goes on; its effects count if it returns."""
    result = _invoke(_stubborn, 1, HANG, 3)

    assert result.failures == []
    assert result.state_mutations == {"count": typed(6, IntType)}


class _SlowFinalizer:
    def __del__(self) -> None:
        time.sleep(2 * SOON.total_seconds())


def _finalize_and_sleep(ctx: Context, message: Message) -> None:
    _count(ctx, message)
    if message.as_int() == HANG:
        finalized = _SlowFinalizer()
        del finalized
        time.sleep(60)


def test_an_interruption_that_a_finalizer_ignores_is_repeated_and_not_reported() -> None:
    """Python ignores what is raised in ``__del__``; pytest fails for all that it reports so."""
    hook = sys.unraisablehook
    result = _invoke(_finalize_and_sleep, 1, HANG)
    assert "in _finalize_and_sleep" in result.failures[0].traceback
    assert sys.unraisablehook is hook


class _FaultyFinalizer:
    def __del__(self) -> None:
        raise ValueError("in a finalizer")


def _finalize_faultily(_ctx: Context, _message: Message) -> None:
    finalized = _FaultyFinalizer()
    del finalized


def test_other_ignored_exceptions_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook that was set before the call gets what is no timeout."""
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: reported.append(ignored.exc_value))
    _invoke(_finalize_faultily, 1)
    assert [str(error) for error in reported] == ["in a finalizer"]


def _hook(_ignored: object) -> None:
    """Ignore the exception."""


def _set_hook(_ctx: Context, _message: Message) -> None:
    sys.unraisablehook = _hook


def test_a_hook_that_a_function_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error reporting that a function sets up at its first call goes on after the call."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    _invoke(_set_hook, 1)
    assert sys.unraisablehook is _hook


def test_a_coroutine_that_cannot_be_cancelled_is_left_alone() -> None:
    """Nobody waits for it, and its later actions are errors."""
    events: list[str] = []
    released = asyncio.Event()

    async def stubborn(ctx: Context, message: Message) -> None:
        _count(ctx, message)
        if message.as_int() != HANG:
            events.append("goes on")
            if len(events) > 1:
                await released.wait()
            return
        while "goes on" not in events[1:]:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        with pytest.raises(FunctionError, match="is used after the call has ended"):
            _count(ctx, message)
        events.append("late")
        released.set()

    result = _invoke(stubborn, 1, HANG, 3)

    assert events == ["goes on", "goes on", "late"]
    assert [failed.cause for failed in result.failures] == ["TimeoutError"]
    assert result.state_mutations == {"count": typed(4, IntType)}
    assert [message.as_int() for message in result.messages] == [1, 3]


def test_warnings_about_many_addresses_of_a_function_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow service does not write a line for each address that waits for it."""
    now = 0.0
    monkeypatch.setattr(deadline, "_warnings", LogLimit(timedelta(seconds=10), clock=lambda: now))

    with caplog.at_level(logging.WARNING, "statefun"):
        for number in range(1000):
            Alarm(SOON, Address("t", "hangs", f"id-{number}")).warn()
        Alarm(SOON, Address("t", "other", "Ada")).warn()
        now = 10.0
        Alarm(SOON, TARGET).warn()

    first, other, last = caplog.messages
    assert first.startswith("function t/hangs at address t/hangs/id-0 has taken half")
    assert other.startswith("function t/other at address t/other/Ada has taken half")
    assert last == (
        f"{WARNING} 0:00:00.200000, at which it is interrupted; 999 such warnings about the function "
        "were left out before"
    )


def test_calls_that_are_quick_enough_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The limit is for each call, and not for all of a batch."""

    def work(ctx: Context, message: Message) -> None:
        _count(ctx, message)
        time.sleep(0.3)

    result = _invoke(work, *range(10), timeout=timedelta(seconds=2))

    assert result.failures == []
    assert caplog.messages == []
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_without_a_limit_no_alarm_is_set() -> None:
    """Nor is one where signals cannot interrupt: outside of the main thread."""
    seen = []

    def look(ctx: Context, message: Message) -> None:
        seen.append(signal.getitimer(signal.ITIMER_REAL)[0] > 0)

    _invoke(look, 1, timeout=None)
    thread = threading.Thread(target=_invoke, args=(look, 1))
    thread.start()
    thread.join()
    _invoke(look, 1)

    assert seen == [False, False, True]


def test_one_timer_serves_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set once for all of them, is reset by nobody, and still ends the one that hangs."""
    set_to: list[float] = []

    def setitimer(which: int, *seconds: float) -> tuple[float, float]:
        set_to.append(seconds[0])
        return original(which, *seconds)

    original = signal.setitimer
    monkeypatch.setattr(signal, "setitimer", setitimer)
    with standby():
        for _ in range(100):
            _invoke(_count, 1, timeout=timedelta(hours=1))
        _invoke(_wait, 1, timeout=timedelta(hours=1))
        many = len(set_to)
        hung = _invoke(_sleep, 1, HANG, 3)

    assert many == 2  # to nothing, and for the first call
    assert [failed.index for failed in hung.failures] == [1]
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_timer_that_a_function_takes_away_is_set_again() -> None:
    """For the calls that follow; so is the handler, and what the function has set stays."""

    def take(ctx: Context, message: Message) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.alarm(0)

    before = signal.getsignal(signal.SIGALRM)
    try:
        with standby():
            _invoke(take, 1)
            hung = _invoke(_sleep, 1, HANG, 3)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert [failed.index for failed in hung.failures] == [1]


@pytest.mark.parametrize("timeout", [0, 5, timedelta(0), timedelta(-1), "1s"])
def test_other_timeouts_are_refused(timeout: Any) -> None:
    """The error names the function."""
    with pytest.raises(
        DefinitionError, match=r"_wait .*a timeout must be a positive timedelta or None"
    ):
        StatefulFunctions().register("t/f", _wait, timeout=timeout)


def test_an_alarm_of_the_users_own_rings() -> None:
    """Handler and timer are as they were, also if a function has set them between two calls."""
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append("theirs"))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        result = _invoke(_sleep, 1, HANG, 3)  # it is ended before that
        time.sleep(0.5)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert [failed.cause for failed in result.failures] == ["TimeoutError"]
    assert rung == ["theirs"]


def test_calls_that_wait_for_others_are_not_late() -> None:
    """Coroutines share a loop: the time that others take is not theirs."""
    functions = StatefulFunctions()

    def compute() -> None:
        time.sleep(0.1)

    @functions.bind("t/busy", timeout=timedelta(seconds=2))
    async def busy(ctx: Context, message: Message) -> None:
        compute()
        await asyncio.sleep(0)
        compute()

    async def side_by_side() -> list[InvocationResult]:
        batch = InvocationBatch(
            Address("t", "busy", "Ada"), {}, [Invocation(None, typed(1, IntType))]
        )
        function = functions.for_typename("t/busy")
        return await asyncio.gather(*(invoke_async(function, batch) for _ in range(15)))

    assert [result.failures for result in asyncio.run(side_by_side())] == [[]] * 15
