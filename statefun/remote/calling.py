# SPDX-License-Identifier: Apache-2.0
"""Calls of an endpoint: attempts with growing pauses, within the time that a call may take.

Stateful Functions 3.x tries again after errors of the connection and after the statuses below; the
pauses between attempts begin at 10 ms and double. Here a reply that is none is tried again as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import NoReturn, TypeVar

from statefun.module.model import Endpoint
from statefun.remote.attempts import (
    AGAIN,
    BROKEN_BEHIND,
    BUSY,
    NOBODY_THERE,
    Budget,
    CallFailedError,
    LaterError,
    OutageError,
    Vain,
    asked_for,
    described,
    is_reply,
    pause_after,
)
from statefun.remote.circuit import SHORTEST_PAUSE, Circuit, EndpointDownError, Probe
from statefun.remote.exchange import ReplyError
from statefun.remote.http_client import Answer, HttpClient, NoConnectionError, NoReplyError
from statefun.sdk.invocation_batch import CircuitReport
from statefun.sdk.shown_uris import shown_uri

T = TypeVar("T")

_FEW_ATTEMPTS = 3
"""After how many attempts it is worth asking whether there is such a function."""
_PROBE_TIME = timedelta(seconds=5)


class Caller:
    """Calls one endpoint from this process.

    Raises:
        ConfigurationError: if its certificates cannot be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client = HttpClient(endpoint)
        self._circuits: dict[str, Circuit] = {}
        """By URL: the functions of an endpoint may be on several servers."""

    async def call(  # noqa: PLR0913, PLR0917 - the parts of a call
        self,
        url: str,
        body: bytes,
        empty: Callable[[], bytes],
        budget: Budget,
        read: Callable[[bytes], T],
        is_unknown: Callable[[], Awaitable[bool]] | None = None,
    ) -> T:
        """Send a request until there is a reply, and return what ``read`` makes of it.

        Args:
            url: the URL of the function.
            body: the request.
            empty: returns a request without messages, which asks whether the endpoint is there.
            budget: the limits of the call.
            read: reads a reply; it raises a ReplyError if the reply is none. What else it raises
                ends the call.
            is_unknown: asks whether the server answers for other functions, but not for this one.

        Raises:
            CallFailedError: if the endpoint answers, but with no reply.
            LaterError: if it is to be called again, and others have been held up for long enough.
            OutageError: if it went down with a message that is alone.
            EndpointDownError: if it cannot be reached, or asks for more time than there is.
        """
        circuit, probe = self._circuit(url), self._probe_of(url, empty)
        call = _Call(circuit, probe, budget, is_unknown)
        try:
            while True:
                await circuit.admit(probe)
                async with self._client.connection():
                    await circuit.admit(probe)  # it may have opened meanwhile
                    begun = time.monotonic()
                    outcome = await self._attempt(url, circuit, body, budget.left, read)
                    budget.left -= time.monotonic() - begun
                if not isinstance(outcome, Vain):
                    budget.attempts, budget.outage, budget.was_away = 0, "", False
                    return outcome
                await call.go_on(outcome)
        except EndpointDownError:
            call.is_down()
            raise

    async def admit(self, url: str, empty: Callable[[], bytes], *, is_asked: bool) -> None:
        """Let a call pass that has not been made yet; ask the endpoint first if ``is_asked``.

        Raises:
            EndpointDownError: if it cannot be reached.
        """
        circuit, probe = self._circuit(url), self._probe_of(url, empty)
        await circuit.admit(probe)
        if is_asked and not await circuit.answers(probe):
            raise circuit.down()

    async def replies(self, url: str, empty: bytes) -> bool:
        """Return whether a request without messages gets a reply."""
        try:
            answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError):
            return False
        return is_reply(answer)

    async def probe(self, url: str, empty: bytes) -> str | None:
        """Ask the endpoint whether it is there; return why not, or None."""
        try:
            answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError) as error:
            return str(error)
        return described(answer, url) if answer.status in NOBODY_THERE else None

    async def false_success(self, url: str, empty: bytes) -> str | None:
        """Ask for a function that is not there; return the answer if it is 200, but no reply."""
        try:
            answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError):
            return None
        is_false = answer.status == HTTPStatus.OK and not is_reply(answer)
        return described(answer, url) if is_false else None

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return the newest report of each circuit that has one."""
        reports = [circuit.take_report() for circuit in self._circuits.values()]
        return [report for report in reports if report is not None]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _probe_of(self, url: str, empty: Callable[[], bytes]) -> Probe:
        async def probe() -> str | None:
            return await self.probe(url, empty())

        return probe

    def _circuit(self, url: str) -> Circuit:
        circuit = self._circuits.get(url)
        if circuit is None:
            circuit = self._circuits[url] = Circuit(shown_uri(url))
        return circuit

    async def _attempt(
        self, url: str, circuit: Circuit, body: bytes, left: float, read: Callable[[bytes], T]
    ) -> T | Vain:
        try:
            answer = await self._client.post(url, body, max(left, 0.001))
        except NoConnectionError as error:
            circuit.not_reached(str(error))
            return Vain(str(error), is_answer=False, is_sent=False)
        except NoReplyError as error:
            return Vain(str(error), is_answer=False, is_broken=error.is_broken)
        if answer.status in NOBODY_THERE:
            circuit.not_reached(described(answer, url))
            return Vain(
                described(answer, url),
                is_answer=False,
                is_sent=False,
                is_broken=answer.status in BROKEN_BEHIND,
                pause=asked_for(answer),
            )
        circuit.reached()
        if is_reply(answer) and answer.is_whole:
            try:
                return read(answer.content)
            except ReplyError as error:
                return Vain(f"{described(answer, url)}: {error}", is_answer=True)
        return self._refusal(answer, url)

    def _refusal(self, answer: Answer, url: str) -> Vain:
        """Return what an answer without a reply means.

        Raises:
            CallFailedError: if another attempt would be in vain.
        """
        if not answer.is_whole and answer.status == HTTPStatus.OK:
            text = f"has answered with more than {self._endpoint.max_bytes:,} bytes"
            return Vain(text, is_answer=True)
        is_again = answer.status == HTTPStatus.OK or answer.status in AGAIN
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR and not is_again:
            raise CallFailedError(described(answer, url))
        is_busy, wait = answer.status in BUSY, asked_for(answer)
        return Vain(described(answer, url), is_answer=True, is_busy=is_busy, pause=wait)


class _Call:
    """A call that was in vain so far."""

    def __init__(
        self,
        circuit: Circuit,
        probe: Probe,
        budget: Budget,
        is_unknown: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._circuit = circuit
        self._probe = probe
        self._budget = budget
        self._is_unknown = is_unknown
        self._answered = ""
        """What the endpoint has last answered, though with no reply."""
        self._lost = ""
        """How long it was waited for, with a request that it may still have."""

    async def go_on(self, vain: Vain) -> None:
        """Wait for the next attempt, if there is one in this micro-batch.

        Raises:
            Exception: as :meth:`Caller.call` does.
        """
        budget = self._budget
        wait = max(pause_after(budget.attempts), vain.pause)
        budget.attempts += 1
        text = f"{vain.text} (attempt {budget.attempts})" if budget.attempts > 1 else vain.text
        is_its_own = vain.is_answer and not vain.is_busy
        self._note(vain, text)
        if is_its_own and await self._lacks_function():
            raise CallFailedError(f"{text}; it replies for other functions, and never for this one")
        is_last = is_its_own and budget.attempts == budget.most_attempts
        if is_last or wait.total_seconds() >= budget.left:
            await self._end(vain, text, wait)
        budget.left -= wait.total_seconds()
        is_late = time.monotonic() + wait.total_seconds() > budget.hold_until
        if not (is_late and (vain.is_answer or vain.is_sent)):
            await asyncio.sleep(wait.total_seconds())
        elif vain.is_answer or await self._circuit.answers(self._probe):
            raise LaterError(text, wait)
        else:
            raise self._circuit.down()

    def is_down(self) -> None:
        """Take note that the endpoint is down now.

        Raises:
            OutageError: if it went down with a message that is alone.
        """
        if self._lost:
            self._went_down(f"{self._lost}, and is down since")

    def _note(self, vain: Vain, text: str) -> None:
        self._lost = "" if vain.is_answer else self._lost
        self._budget.was_away |= vain.is_broken or not vain.is_sent
        if vain.is_broken:
            self._lost = ""
            self._went_down(text)
        elif vain.is_answer and not vain.is_busy:
            self._answered = text
        elif vain.is_sent:
            self._lost = text

    def _went_down(self, text: str) -> None:
        self._budget.outage = text
        if self._budget.is_alone:
            raise OutageError(text)

    async def _lacks_function(self) -> bool:
        if self._is_unknown is None or self._budget.attempts < _FEW_ATTEMPTS:
            return False
        return await self._is_unknown()

    async def _end(self, vain: Vain, text: str, wait: timedelta) -> NoReturn:
        """End a call that has no time left."""
        if vain.is_answer and not vain.is_busy:
            raise CallFailedError(text)
        if vain.is_busy or vain.pause:
            self._circuit.rest(max(vain.pause, SHORTEST_PAUSE), vain.text)
            raise self._circuit.down()
        # An endpoint that answers nothing at all is down, which is nobody's failure.
        if not await self._circuit.answers(self._probe):
            raise self._circuit.down()
        if self._budget.was_away and not self._answered:
            raise LaterError(text, wait)  # it had not all of the time
        # The last attempt may have had too little time; an answer before says more than that.
        raise CallFailedError(self._answered or text, is_final=bool(self._answered))
