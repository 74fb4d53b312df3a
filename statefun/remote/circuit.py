# SPDX-License-Identifier: Apache-2.0
"""Circuits: an endpoint that is down gets no calls for a while, and then a probe (a request without messages).

A circuit is closed as long as the endpoint can be reached. When several attempts in a row do not reach the
endpoint, the circuit opens: calls are refused at once, and their messages wait. After a pause, one probe
asks whether the endpoint can be reached; all calls of the process use its result. A micro-batch does not wait
for a slow answer: calls are refused until it has come.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta

from statefun.sdk.event_loop import keep
from statefun.sdk.invocation_batch import CircuitReport

FEW_FAILURES = 5
"""How many attempts in a row must fail to reach the endpoint before its circuit opens."""
PATIENCE = timedelta(seconds=2)
"""For how long attempts must fail to reach the endpoint, at least, before its circuit opens."""
SHORTEST_PAUSE = timedelta(seconds=1)
"""The first pause of an open circuit; each later pause is twice as long."""
LONGEST_PAUSE = timedelta(seconds=30)
"""The longest pause of an open circuit."""
PROBE_PATIENCE = timedelta(milliseconds=200)
"""How long calls wait for the answer to a probe before they are refused."""
LONGEST_REST = timedelta(hours=1)
"""The longest time without calls that an endpoint may ask for; a longer time is shortened to this."""

Probe = Callable[[], Awaitable[str | None]]
"""Sends a request without messages; returns why the endpoint cannot be reached, or None if it can."""


class EndpointDownError(Exception):
    """An endpoint cannot be reached, or has asked not to be called for a while; messages to it wait."""

    def __init__(self, wait: timedelta, *, is_rest: bool = False) -> None:
        super().__init__()
        self.wait = wait
        """How long to wait before the endpoint is called again."""
        self.is_rest = is_rest
        """Whether the endpoint only wants no calls now, and is not known to be down."""


class Circuit:
    """The circuit of one endpoint in this process.

    Args:
        endpoint: the name of the endpoint in error and log texts.
        reports: gets the newest report, by the name of the endpoint. Each refused call makes a report that the
            endpoint is down, because the run that reads the report may be a new one. An endpoint that can be reached
            again makes one report only.
        clock: returns the present time, in seconds.
    """

    def __init__(
        self,
        endpoint: str,
        reports: MutableMapping[str, CircuitReport],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._reports = reports
        self._clock = clock
        self._failures = 0
        self._failing_since = 0.0
        self._opened_until: float | None = None
        self._pause = SHORTEST_PAUSE
        self._resting_until = 0.0
        """Until when the endpoint wants no calls, as it has said."""
        self._question: asyncio.Task[bool] | None = None
        """The probe that is on its way, or the last one; its result is whether the endpoint answers."""
        self._asked_at = 0.0
        """When the newest probe was sent."""
        self._problem = ""
        """Why the endpoint could not be reached the last time."""
        self._is_known_to_answer = False
        self._calls = 0
        """The number of calls under way."""

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call as under way during the ``with`` block."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def is_needed(self) -> bool:
        """Return whether a new circuit could not replace this one: it is not just closed, or a call uses it."""
        is_closed = self._opened_until is None and not self._failures
        is_asked = self._question is not None and not self._question.done()
        is_resting = self._clock() < self._resting_until
        return not is_closed or is_asked or is_resting or self._calls > 0

    async def admit(self, probe: Probe) -> None:
        """Let a call pass, or raise an error; if the pause of an open circuit is over, send a probe first.

        Raises:
            EndpointDownError: if the endpoint is down, or wants no calls now, or has not answered the probe yet.
        """
        if self._clock() < self._resting_until:
            raise self.down_error()
        if self._opened_until is None:
            return
        if self._clock() < self._opened_until or not await self._answers_soon(probe):
            raise self.down_error()

    async def answers(self, probe: Probe) -> bool:
        """Send a probe; return whether the endpoint can be reached. Calls at the same time share one probe."""
        return await asyncio.shield(self._asked(probe))

    async def _answers_soon(self, probe: Probe) -> bool:
        """Send a probe; return False if it is not answered within ``PROBE_PATIENCE``: the probe goes on then."""
        question = self._asked(probe)
        rest = self._asked_at + PROBE_PATIENCE.total_seconds() - self._clock()
        if rest > 0:
            await asyncio.wait([question], timeout=rest)
        return question.done() and question.result()

    def _asked(self, probe: Probe) -> asyncio.Task[bool]:
        """Return the probe that is on its way; send one if there is none."""
        question = self._question
        if question is None or question.done():
            self._asked_at = self._clock()
            question = self._question = asyncio.ensure_future(self._ask(probe))
            keep(question)
        return question

    def down_error(self) -> EndpointDownError:
        """Return the error for a call that is refused, and make a report that the endpoint is down."""
        until = max(self._opened_until or 0, self._resting_until)
        wait = timedelta(seconds=max(until - self._clock(), 0))
        if self._question is not None and not self._question.done():
            wait = max(wait, SHORTEST_PAUSE)
        self._reports[self._endpoint] = CircuitReport(self._endpoint, self._problem, wait)
        is_rest = self._opened_until is None and self._clock() < self._resting_until
        return EndpointDownError(wait, is_rest=is_rest)

    def reached(self) -> None:
        """Record that the endpoint has answered, and close the circuit."""
        self._failures = 0
        if not self._is_known_to_answer:
            self._is_known_to_answer = True
            self._opened_until = None
            self._pause = SHORTEST_PAUSE
            self._reports[self._endpoint] = CircuitReport(self._endpoint, None)

    def not_reached(self, problem: str) -> None:
        """Record an attempt that did not reach the endpoint; after several in a row, open the circuit."""
        if not self._failures:
            self._failing_since = self._clock()
        self._failures += 1
        patience = self._clock() - self._failing_since
        if self._failures >= FEW_FAILURES and patience >= PATIENCE.total_seconds():
            self._open(problem)

    def rest(self, time: timedelta, problem: str) -> None:
        """Refuse calls for the time that the endpoint has asked for, but for ``LONGEST_REST`` at most."""
        self._problem, self._is_known_to_answer = problem, False
        until = self._clock() + min(time, LONGEST_REST).total_seconds()
        self._resting_until = max(self._resting_until, until)

    async def _ask(self, probe: Probe) -> bool:
        try:
            problem = await probe()
        except Exception as error:  # noqa: BLE001 - whatever is raised, the endpoint was not reached
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
            return  # another call has opened the circuit already
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        # The pause is random, so that the workers do not all send their probes at the same time.
        self._opened_until = now + self._pause.total_seconds() * random.uniform(0.75, 1.25)  # noqa: S311
