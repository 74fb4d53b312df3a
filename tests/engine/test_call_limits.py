# SPDX-License-Identifier: Apache-2.0
"""Waiting until a function may be called, in the time of a loop that waits for nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, cast

import pytest
from finished_futures import finished
from patience import SECONDS
from simulation.clocks import MachineClock
from simulation.side_by_side import _Loop

from statefun import Context, Message, RateLimit, StatefulFunctions
from statefun.engine import call_limits
from statefun.engine.call_limits import GROUP_SIZES, MOST_ALONE, CallLimits, Company, shared_turn
from statefun.sdk.address import TypeName
from statefun.sdk.stateful_function import StatefulFunction


def function(name: str = "t/f", **options: Any) -> StatefulFunction:
    """Return a function with limits."""
    functions = StatefulFunctions()

    async def fun(ctx: Context, message: Message) -> None:
        pass

    functions.register(name, fun, **options)
    return functions.for_typename(name)


def at_once() -> Future[None]:
    """Report to the driver: the report is sent."""
    return finished(None)


def begins(
    *functions: StatefulFunction,
    takes: float = 0.0,
    losses: Sequence[int] = (),
    apart: float = 0.0,
) -> list[float]:
    """Call functions; return after how many seconds each call begins.

    Args:
        functions: the functions.
        takes: how long each call takes, in seconds.
        losses: how many times each call was lost.
        apart: the seconds between the arrivals of two calls.
    """
    loop, limits = _Loop(MachineClock(Random(0))), CallLimits()

    async def run() -> list[float]:
        begun = loop.time()

        async def call(index: int, function: StatefulFunction, lost: int) -> float:
            await asyncio.sleep(apart * index)
            place = limits.place_again(function, lost, at_once) if lost else limits.place(function)
            async with place:
                since = loop.time() - begun
                await asyncio.sleep(takes)
                return round(since, 1)

        return await asyncio.gather(*map(call, count(), functions, losses or [0] * len(functions)))

    return loop.run_until_complete(run())


def test_without_limits_all_calls_begin_at_once() -> None:
    """Nothing is counted."""
    assert begins(*[function()] * 5, takes=1) == [0.0] * 5


def test_a_rate_lets_a_burst_begin_and_spreads_the_others() -> None:
    """Within its time no more calls begin than the limit says, and then one after the other."""
    limited = function(rate_limit=RateLimit(2, per=timedelta(seconds=1)))

    assert begins(*[limited] * 6) == [0.0, 0.0, 0.5, 1.0, 1.5, 2.0]


def test_functions_with_one_resource_share_its_rate() -> None:
    """The limit is the resource's."""
    limit = RateLimit(1, per=timedelta(seconds=1), resource="payments")
    first, second = function("t/first", rate_limit=limit), function("t/second", rate_limit=limit)
    alone = function("t/alone", rate_limit=RateLimit(1))

    assert begins(first, second, alone) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(("most", "expected"), [(1, [0.0, 2.0, 4.0]), (2, [0.0, 0.0, 2.0])])
def test_no_more_calls_are_made_at_a_time_than_allowed(most: int, expected: list[float]) -> None:
    """The next call begins when one has ended."""
    assert begins(*[function(max_in_flight=most)] * 3, takes=2) == expected


@pytest.mark.parametrize("losses", [1, 2])
def test_calls_that_were_lost_run_in_groups(losses: int) -> None:
    """Others are not held up, and more losses make smaller groups."""
    size = GROUP_SIZES[losses - 1]
    lost = [losses] * (size + 1)

    found = begins(*[function()] * (size + 2), takes=1, losses=[*lost, 0])

    assert found == [0.0] * size + [1.0, 0.0]


def test_a_call_that_was_lost_often_runs_alone() -> None:
    """It waits for the calls that run, and all others wait for it; between two such calls, the others begin."""
    losses = [0, 1, 3, 3, 0, 2]

    found = begins(*[function()] * len(losses), takes=1, losses=losses, apart=0.02)

    assert found == [0.0, 0.0, 1.0, 3.0, 2.0, 2.0]


def test_a_call_that_runs_alone_in_one_run_does_so_for_all_runs_of_the_process() -> None:
    """Several runs of one Spark session share its workers."""
    loop, company = _Loop(MachineClock(Random(0))), Company()
    first, second = CallLimits(company), CallLimits(company)

    async def call(place: AbstractAsyncContextManager[object]) -> float:
        async with place:
            begun = loop.time()
            await asyncio.sleep(1)
            return begun

    async def run() -> list[float]:
        alone = call(first.place_again(function(), 3, at_once))
        begun = await asyncio.gather(alone, call(second.place(function())))
        return [each - begun[1] for each in begun]

    assert loop.run_until_complete(run()) == pytest.approx([1, 0])


def test_of_the_calls_of_several_processes_one_runs_alone() -> None:
    """If another process has the turn, a call waits, until that process ends."""
    file = shared_turn()
    code = f"import fcntl, sys; fcntl.lockf({file}, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    other.stdout.readline()

    async def call(begun: asyncio.Event) -> None:
        async with CallLimits().place_again(function(), 3, at_once):
            begun.set()

    async def run() -> bool:
        begun = asyncio.Event()
        task = asyncio.create_task(call(begun))
        await asyncio.sleep(0.3)
        has_waited = not begun.is_set()
        other.kill()
        await task
        return has_waited

    with other:
        assert asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the file is in the temporary folder")
def test_the_turn_needs_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker daemon must begin where it can write no file at all."""
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")

    shared, other = shared_turn(), shared_turn.__wrapped__()
    os.close(other)

    assert other != shared


def test_a_call_that_blocks_the_event_loop_does_not_keep_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process gets it, and the driver learns first that the call is no longer alone."""
    monkeypatch.setattr(call_limits, "_LONGEST", timedelta(milliseconds=100))
    file, reports = shared_turn(), list[str]()
    other = [sys.executable, "-c", f"import fcntl; fcntl.lockf({file}, fcntl.LOCK_EX)"]

    def accompanied() -> Future[None]:
        reports.append("accompanied")
        return at_once()

    async def blocks() -> None:
        async with CallLimits().place_again(function(), 3, accompanied):
            subprocess.run(other, pass_fds=[file], check=True, timeout=SECONDS)  # noqa: ASYNC221 - as the test wants it
            reports.append("turn of another process")

    asyncio.run(blocks())

    assert reports == ["accompanied", "turn of another process"]


def test_a_call_that_runs_alone_may_fail() -> None:
    """Others go on."""
    loop, limits = _Loop(MachineClock(Random(0))), CallLimits()

    async def fails() -> None:
        async with limits.place_again(function(), 3, at_once):
            raise ValueError

    async def run() -> tuple[object, object]:
        async def ends() -> int:
            async with limits.place(function()):
                return 1

        return await asyncio.gather(fails(), ends(), return_exceptions=True)

    error, result = loop.run_until_complete(run())

    assert isinstance(error, ValueError)
    assert result == 1


def test_calls_of_endpoints_do_not_wait_for_a_call_that_runs_alone() -> None:
    """They run no code of users in this process."""
    remote = StatefulFunction(TypeName("t", "far"), (), {}, transport=cast("Any", object()))

    found = begins(function(), remote, function(), takes=1, losses=[3, 0, 0], apart=0.02)

    assert found == [0.0, 0.0, 1.0]


def test_a_call_of_an_endpoint_alone_does_not_wait_for_places() -> None:
    """Its micro-batch waits for it, and the places may be those of calls that take hours."""
    limits = CallLimits()
    remote = StatefulFunction(
        TypeName("t", "far"), (), {}, transport=cast("Any", object()), max_in_flight=1
    )

    async def call() -> None:
        async with limits.place(remote):
            await asyncio.sleep(3600)

    async def run() -> list[bool]:
        others = [asyncio.ensure_future(call()) for _ in range(2)]
        await asyncio.sleep(1)
        async with limits.place(remote, is_alone=True):
            ended = [each.done() for each in others]
        await asyncio.gather(*others)
        return ended

    assert _Loop(MachineClock(Random(0))).run_until_complete(run()) == [False, False]


def test_a_call_of_an_endpoint_alone_does_not_wait_for_the_rate() -> None:
    """Others may have to wait for hours; it counts all the same, for calls that come later."""
    limits = CallLimits()
    remote = StatefulFunction(
        TypeName("t", "far"), (), {}, transport=cast("Any", object()), rate_limit=RateLimit(1)
    )
    loop = _Loop(MachineClock(Random(0)))

    async def call(*, is_alone: bool = False) -> float:
        async with limits.place(remote, is_alone=is_alone):
            return round(loop.time() - begun, 1)

    async def run() -> tuple[list[float], float, float]:
        calls = [asyncio.ensure_future(call()) for _ in range(100)]
        await asyncio.sleep(2.5)
        alone = await call(is_alone=True)
        return await asyncio.gather(*calls), alone, await call()

    begun = loop.time()

    assert loop.run_until_complete(run()) == ([*map(float, range(100))], 2.5, 101.0)


def test_calls_that_run_long_do_not_hold_up_all_others() -> None:
    """A call does not wait for ever to run alone, nor does it run alone for ever; between two, others begin."""
    alone = MOST_ALONE.total_seconds()
    never_alone = begins(
        function(), function(), function(), takes=9 * alone, losses=[0, 3, 0], apart=0.02
    )
    long_alone = begins(
        function(), function(), function(), takes=9 * alone, losses=[3, 0, 3], apart=0.02
    )

    assert never_alone == [0.0, alone, alone]
    assert long_alone == [0.0, alone, 2 * alone]


def test_a_call_counts_as_the_reason_while_it_is_alone() -> None:
    """In company it might be innocent."""
    loop, limits, minute = _Loop(MachineClock(Random(0))), CallLimits(), MOST_ALONE.total_seconds()

    async def call(losses: int, takes: float) -> tuple[float, ...]:
        accompanied: list[float] = []

        def others_begin() -> Future[None]:
            accompanied.append(loop.time() - begun)
            return at_once()

        async with limits.place_again(function(), losses, others_begin) as counts:
            begun = loop.time()
            await asyncio.sleep(takes)
        return counts, *accompanied

    async def run() -> list[object]:
        return [
            await call(1, 2 * minute),
            await call(3, minute / 2),
            [round(each) for each in await call(3, 2 * minute)],
            await asyncio.gather(call(1, 9 * minute), call(3, 1)),
        ]

    assert loop.run_until_complete(run()) == [
        (True,), (True,), [1, minute], [(True,), (False,)],
    ]  # fmt: skip


@pytest.mark.parametrize("company", [0, 3])
def test_a_call_that_is_cancelled_while_it_waits_to_run_alone_holds_nobody_up(company: int) -> None:
    """Other calls begin, also one that runs alone."""
    loop, limits = _Loop(MachineClock(Random(0))), CallLimits()

    async def call(losses: int, takes: float) -> float:
        place = (
            limits.place_again(function(), losses, at_once) if losses else limits.place(function())
        )
        async with place:
            begun = loop.time()
            await asyncio.sleep(takes)
        return begun

    async def run() -> bool:
        first = loop.create_task(call(company, 10))
        await asyncio.sleep(1)
        waiting = loop.create_task(call(3, 1))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        normal, alone = loop.create_task(call(0, 1)), loop.create_task(call(3, 1))
        return await first < await normal < 12 + await first and await alone < 13 + await first

    assert loop.run_until_complete(run())


def test_a_rate_holds_after_a_call_that_ran_alone() -> None:
    """Calls that have waited for it begin one after the other."""
    limited = function(rate_limit=RateLimit(1))

    found = begins(function(), *[limited] * 3, takes=10, losses=[3, 0, 0, 0], apart=0.02)

    assert found == [0.0, 10.0, 11.0, 12.0]
