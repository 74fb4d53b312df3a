# SPDX-License-Identifier: Apache-2.0
import asyncio

import pytest

from statefun.sdk.event_loop import await_all, outside_of_loops


async def fail() -> None:
    """Fail as a coroutine function of a user does."""
    raise ValueError("no such tariff")


def test_an_error_of_a_coroutine_has_no_other_context() -> None:
    """Its traceback, as in a dead letter, begins with nothing that the runtime has tried before."""
    [error] = await_all([fail()], 1)

    assert isinstance(error, ValueError)
    assert error.__context__ is None
    with pytest.raises(ValueError, match="tariff") as raised:
        outside_of_loops(lambda: asyncio.run(fail()))
    assert raised.value.__context__ is None


def test_a_loop_runs_inside_of_another_one() -> None:
    """A notebook, or a test that is a coroutine, has a running loop in its thread."""

    async def outer() -> int:
        return outside_of_loops(lambda: asyncio.run(asyncio.sleep(0, 7)))

    assert asyncio.run(outer()) == 7
