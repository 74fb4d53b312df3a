# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from statefun.sdk.address import Address
from statefun.sdk.deadline import CallTimeoutError
from statefun.sdk.watchdog import finished

ADDRESS = Address("test.fns", "slow", "Ada")
LONG, SHORT = 60.0, 0.5
"""Seconds: timeouts."""


class _Skipping(selectors.SelectSelector):
    """Skips the time in which nothing would happen."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock shows the time that was skipped."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


async def _waiting(seconds: float) -> BaseException | None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError as error:
        return error
    return None


def _call(takes: float, timeout: float) -> Coroutine[Any, Any, BaseException | None]:
    return finished(_waiting(takes), timedelta(seconds=timeout), ADDRESS)


async def _ended_after(every: float) -> float:
    """Return when a call with a long timeout ends beside short ones that come all the time."""
    loop = asyncio.get_running_loop()
    long = loop.create_task(_call(10_000.0, LONG))
    while not long.done():
        assert await _call(SHORT / 50, SHORT) is None
        await asyncio.sleep(every)
    assert isinstance(long.result(), CallTimeoutError)
    return loop.time()


@pytest.mark.parametrize("every", [0.3, 0.9, 0.99, 1.7, 100.0])
def test_short_calls_do_not_put_off_the_end_of_a_long_one(every: float) -> None:
    """Time that has passed when a call with a shorter timeout begins counts for the others."""
    with closing(_VirtualLoop()) as loop:
        ended = loop.run_until_complete(_ended_after(every))

    assert LONG <= ended <= LONG + 3 + every


def test_a_call_without_a_timeout_returns_its_exception_or_none() -> None:
    """The call takes as long as it takes, and its exception is no exception of the caller."""

    async def calls() -> list[BaseException | None]:
        error = ValueError("no")

        async def failing() -> BaseException | None:
            await asyncio.sleep(LONG)
            return error

        results = [await finished(_waiting(100_000.0), None, ADDRESS)]
        results.append(await finished(failing(), None, ADDRESS))
        assert results[1] is error
        return results

    with closing(_VirtualLoop()) as loop:
        assert loop.run_until_complete(calls())[0] is None
