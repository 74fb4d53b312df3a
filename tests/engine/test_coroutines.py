# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from statefun.sdk.address import Address
from statefun.sdk.deadline import CallTimeoutError, standby
from statefun.sdk.event_loop import await_all
from statefun.sdk.watchdog import finished

ADDRESS = Address("test.fns", "blocking", "a")


async def answer() -> int:
    """Return something, after a moment."""
    await asyncio.sleep(0)
    return 42


async def leave() -> None:
    """Ask for the end of the process."""
    await asyncio.sleep(0)
    sys.exit(3)


async def in_a_task(child: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await a task of one's own."""
    await asyncio.gather(child())


async def stop() -> None:
    """Stop the loop that others run on."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


def test_calls_are_awaited_side_by_side() -> None:
    """Results have the order of the calls."""
    assert await_all([answer(), answer()], 1) == [42, 42]


def test_a_task_that_asks_for_the_end_fails_its_call() -> None:
    """No other call fails: the worker continues, with the results of the others."""
    calls: list[Awaitable[object]] = [answer(), in_a_task(leave), answer()]

    first, failed, last = await_all(calls, 10)

    assert (first, last) == (42, 42)
    assert isinstance(failed, SystemExit)


def test_a_loop_that_is_stopped_goes_on() -> None:
    """It does not matter which code has stopped the loop."""
    calls: list[Awaitable[object]] = [stop(), answer()]

    assert await_all(calls, 10) == [None, 42]


def test_a_loop_that_is_closed_gets_a_successor() -> None:
    """Other code cannot get the loop, but a coroutine that has kept it could close it."""
    kept: list[asyncio.AbstractEventLoop] = []

    async def keep() -> None:
        kept.append(asyncio.get_running_loop())

    await_all([keep()], 1)
    kept[0].close()

    assert await_all([answer()], 1) == [42]


@pytest.mark.parametrize("through", ["gather", "wait_for", "task"])
def test_tasks_of_a_call_cannot_block_for_longer_than_its_timeout(through: str) -> None:
    """This also holds if the function that awaits the tasks does not block itself."""

    async def block() -> None:
        time.sleep(600)  # noqa: ASYNC251 - what is tested

    async def call() -> BaseException | None:
        try:
            if through == "gather":
                await asyncio.gather(block())
            elif through == "wait_for":
                await asyncio.wait_for(block(), 500)
            else:
                await asyncio.create_task(block())
        except BaseException as error:  # noqa: BLE001 - as the runtime does
            return error
        return None

    with standby():
        [found] = await_all([finished(call(), timedelta(milliseconds=300), ADDRESS)], 1)

    assert isinstance(found, CallTimeoutError)
