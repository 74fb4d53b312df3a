# SPDX-License-Identifier: Apache-2.0
"""Circuits: an endpoint that is down is left alone for a while, and asked whether it is back.

A circuit is closed as long as the endpoint can be reached. When it cannot, again and again, the
circuit opens: calls are refused at once, and their messages wait. After a pause one request asks
the endpoint whether it is there, for all calls of the process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from statefun.sdk.invocation_batch import CircuitReport

FEW_FAILURES = 5
"""How many attempts in a row have to fail before a circuit opens."""
PATIENCE = timedelta(seconds=2)
"""How long they have to fail."""
SHORTEST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
LONGEST_REST = timedelta(hours=1)
"""The longest time for which an endpoint may ask to be left alone."""

Probe = Callable[[], Awaitable[str | None]]
"""Asks an endpoint whether it is there; returns why not, or None."""


class EndpointDownError(Exception):
    """An endpoint cannot be reached, or has asked for a rest; its messages wait."""

    def __init__(self, wait: timedelta) -> None:
        super().__init__()
        self.wait = wait
        """After how long it is worth trying again."""


class Circuit:
    """The circuit of one endpoint in this process.

    Args:
        endpoint: the endpoint's name in texts.
        clock: the present time in seconds.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._failures = 0
        self._failing_since = 0.0
        self._opened_until: float | None = None
        self._pause = SHORTEST_PAUSE
        self._resting_until = 0.0
        """Until when the endpoint has asked to be left alone."""
        self._asking: asyncio.Task[bool] | None = None
        self._problem = ""
        """The last one."""
        self._is_known_to_answer = False
        self._report: CircuitReport | None = None
        """The newest report that was not taken yet."""

    async def admit(self, probe: Probe) -> None:
        """Let a call pass; if the circuit was open for long enough, ask the endpoint first.

        Raises:
            EndpointDownError: if the endpoint is down.
        """
        if self._clock() < self._resting_until:
            raise self.down()
        if self._opened_until is None:
            return
        if self._clock() < self._opened_until or not await self.answers(probe):
            raise self.down()

    async def answers(self, probe: Probe) -> bool:
        """Ask the endpoint whether it is there; calls that ask at the same time share an answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask(probe))
        return await asyncio.shield(self._asking)

    def down(self) -> EndpointDownError:
        """Return the error of a call that has to wait."""
        until = max(self._opened_until or 0, self._resting_until)
        wait = timedelta(seconds=max(until - self._clock(), 0))
        self._report = CircuitReport(self._endpoint, self._problem, wait)
        return EndpointDownError(wait)

    def reached(self) -> None:
        """Take note that the endpoint has answered."""
        self._failures = 0
        if not self._is_known_to_answer:
            self._is_known_to_answer = True
            self._opened_until = None
            self._pause = SHORTEST_PAUSE
            self._report = CircuitReport(self._endpoint, None)

    def not_reached(self, problem: str) -> None:
        """Take note of an attempt that did not reach the endpoint."""
        if not self._failures:
            self._failing_since = self._clock()
        self._failures += 1
        patience = self._clock() - self._failing_since
        if self._failures >= FEW_FAILURES and patience >= PATIENCE.total_seconds():
            self._open(problem)

    def rest(self, time: timedelta, problem: str) -> None:
        """Leave the endpoint alone for as long as it has asked for."""
        self._problem, self._is_known_to_answer = problem, False
        self._resting_until = self._clock() + min(time, LONGEST_REST).total_seconds()

    def take_report(self) -> CircuitReport | None:
        """Return the newest report since this method was called last; None if there is none.

        Each refused call of an endpoint that is down makes a report, as the run that reads it may be
        a new one. An endpoint that can be reached makes one, and no other until it was down again.
        """
        report, self._report = self._report, None
        return report

    async def _ask(self, probe: Probe) -> bool:
        try:
            problem = await probe()
        except Exception as error:  # noqa: BLE001 - whatever it is, the endpoint was not reached
            problem = f"cannot be asked: {type(error).__name__}: {error}"
        if problem is None:
            self.reached()
        else:
            self._open(problem)
        return problem is None

    def _open(self, problem: str) -> None:
        now = self._clock()
        self._problem, self._is_known_to_answer = problem, False
        if self._opened_until is None:
            self._failures = 0
        elif now < self._opened_until:
            return  # another call has come first
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        # Workers are not to ask all at the same time.
        self._opened_until = now + self._pause.total_seconds() * random.uniform(0.75, 1.25)  # noqa: S311
