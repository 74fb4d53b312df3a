# SPDX-License-Identifier: Apache-2.0
"""Waiting until a function may be called, in the time of a loop that waits for nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from simulation.clocks import MachineClock
from simulation.side_by_side import _Loop

from statefun import Context, Message, RateLimit, StatefulFunctions
from statefun.engine.call_limits import CallLimits
from statefun.sdk.stateful_function import StatefulFunction


def function(name: str = "t/f", **options: Any) -> StatefulFunction:
    """Return a function with limits."""
    functions = StatefulFunctions()

    async def fun(ctx: Context, message: Message) -> None:
        pass

    functions.register(name, fun, **options)
    return functions.for_typename(name)


def begins(*functions: StatefulFunction, takes: float = 0.0) -> list[float]:
    """Call functions at the same time; return after how many seconds each call begins."""
    loop, limits = _Loop(MachineClock(Random(0))), CallLimits()

    async def run() -> list[float]:
        begun = loop.time()

        async def call(function: StatefulFunction) -> float:
            async with limits.place(function):
                since = loop.time() - begun
                await asyncio.sleep(takes)
                return round(since, 1)

        return await asyncio.gather(*map(call, functions))

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
