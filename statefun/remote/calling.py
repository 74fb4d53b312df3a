# SPDX-License-Identifier: Apache-2.0
"""Calls endpoints: makes attempts (requests) with growing pauses, within the time that a call may take.

Stateful Functions 3.x sends a request again after errors of the connection and after some HTTP statuses; the
pauses between attempts begin at 10 ms and double. This module does the same, and also sends a request again
after an answer with status 200 that is no reply of a function.
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
    BUSY,
    NOBODY_THERE,
    Budget,
    CallFailedError,
    LaterError,
    OutageError,
    VainAttempt,
    described,
    is_broken_behind,
    is_reply,
    pause_after,
    requested_pause,
)
from statefun.remote.circuit import LONGEST_PAUSE, SHORTEST_PAUSE, Circuit, EndpointDownError, Probe
from statefun.remote.exchange import ReplyError
from statefun.remote.http_client import (
    Answer,
    HttpClient,
    NoConnectionError,
    NoReplyError,
    WrongUrlError,
)
from statefun.sdk.bounded_map import BoundedMap
from statefun.sdk.invocation_batch import CircuitReport
from statefun.sdk.shown_uris import shown_uri

T = TypeVar("T")

_FEW_ATTEMPTS = 3
"""After this many attempts without a reply, the server is asked whether it has the function at all."""
_PROBE_TIME = timedelta(seconds=5)
"""The time limit of a probe: a request without messages, which checks an endpoint or a function."""


class Caller:
    """Calls one endpoint from this process.

    Raises:
        ConfigurationError: if the endpoint's certificates cannot be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client = HttpClient(endpoint)
        self._circuits: BoundedMap[str, Circuit] = BoundedMap(lambda circuit: circuit.is_needed())
        """The circuits by URL, as the functions of an endpoint may be on several servers."""
        self._reports: dict[str, CircuitReport] = {}
        """The newest report of each circuit that has a new one, by the shown URL."""

    async def call(  # noqa: PLR0913, PLR0917 - the parts of a call
        self,
        url: str,
        body: bytes,
        empty: Callable[[], bytes],
        budget: Budget,
        read: Callable[[bytes], T],
        is_unknown: Callable[[], Awaitable[bool]] | None = None,
    ) -> T:
        """Send a request again and again until a reply comes; return the reply as ``read`` has decoded it.

        Args:
            url: the URL of the function.
            body: the request.
            empty: returns a request without messages, which asks whether the endpoint can be reached.
            budget: the limits of the call.
            read: decodes a reply; it raises a ReplyError if the bytes are no reply. Any other exception
                ends the call.
            is_unknown: asks whether the server replies for another function, but not for this one.

        Raises:
            CallFailedError: if the endpoint answers, but not with a reply of a function.
            LaterError: if the call has to be made again in a later micro-batch, as other addresses must
                not wait for it any longer.
            OutageError: if the endpoint went down during a call with ``budget.is_alone``.
            EndpointDownError: if the endpoint cannot be reached, or asks for a longer pause than time remains.
        """
        circuit, probe = self._circuit(url), self._probe_of(url, empty)
        call = _Call(circuit, probe, budget, is_unknown)
        try:
            with circuit.call():
                while True:
                    await circuit.admit(probe)
                    async with self._client.permit(is_alone=budget.is_alone):
                        await circuit.admit(probe)  # the circuit may have opened during the wait
                        begun = time.monotonic()
                        outcome = await self._attempt(url, circuit, body, budget, read)
                        budget.seconds -= time.monotonic() - begun
                    if not isinstance(outcome, VainAttempt):
                        budget.attempts, budget.outage, budget.was_away = 0, "", False
                        return outcome
                    await call.go_on(outcome)
        except EndpointDownError as down:
            if not down.is_rest:
                call.record_down()
            raise

    async def admit(self, url: str, empty: Callable[[], bytes], *, is_asked: bool) -> None:
        """Check that the endpoint can be called now; raise an error if it is down.

        Args:
            url: the URL of the function.
            empty: returns a request without messages.
            is_asked: whether to send such a request first, even if the endpoint's circuit is closed.

        Raises:
            EndpointDownError: if the endpoint cannot be reached.
        """
        circuit, probe = self._circuit(url), self._probe_of(url, empty)
        await circuit.admit(probe)
        if is_asked and not await circuit.answers(probe):
            raise circuit.down_error()

    async def replies(self, url: str, empty: bytes, *, is_alone: bool) -> bool:
        """Send a request without messages; return whether the answer is a reply of a function.

        Many calls may ask at the same time, so the request needs a permit unless ``is_alone``.
        """
        try:
            async with self._client.permit(is_alone=is_alone):
                answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError):
            return False
        return is_reply(answer)

    async def probe(self, url: str, empty: bytes) -> str | None:
        """Ask whether the endpoint can be reached; return why it cannot be, or None if it can."""
        try:
            answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError) as error:
            return str(error)
        return described(answer, url) if answer.status in NOBODY_THERE else None

    async def false_success(self, url: str, empty: bytes) -> str | None:
        """Ask for a function that does not exist, to find a server that answers every request with success.

        Proxies and web servers may be such servers. ``empty`` is the request for that function.

        Returns:
            The answer as text, if it has status 200, but no reply of a function, or an empty one; else None.
        """
        try:
            answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError):
            return None
        has_reply = is_reply(answer) and answer.is_whole and answer.content
        is_false = answer.status == HTTPStatus.OK and not has_reply
        return described(answer, url) if is_false else None

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return the newest report of each circuit that has a new one; calls in another thread may add further ones."""
        return [self._reports.pop(name) for name in list(self._reports)]

    async def close(self) -> None:
        """Close the connections to the endpoint."""
        await self._client.close()

    def _probe_of(self, url: str, empty: Callable[[], bytes]) -> Probe:
        async def probe() -> str | None:
            return await self.probe(url, empty())

        return probe

    def _circuit(self, url: str) -> Circuit:
        circuit = self._circuits.get(url)
        if circuit is None:
            circuit = self._circuits[url] = Circuit(shown_uri(url), self._reports)
        return circuit

    async def _attempt(
        self, url: str, circuit: Circuit, body: bytes, budget: Budget, read: Callable[[bytes], T]
    ) -> T | VainAttempt:
        try:
            seconds = max(budget.seconds, 0.001)
            answer = await self._client.post(url, body, seconds, is_alone=budget.is_alone)
        except WrongUrlError as error:
            raise CallFailedError(str(error)) from error
        except NoConnectionError as error:
            circuit.not_reached(str(error))
            return VainAttempt(str(error), is_answer=False, is_sent=False)
        except NoReplyError as error:
            return VainAttempt(str(error), is_answer=False, is_broken=error.is_broken)
        if answer.status in NOBODY_THERE:
            circuit.not_reached(described(answer, url))
            return VainAttempt(
                described(answer, url),
                is_answer=False,
                is_sent=False,
                is_broken=is_broken_behind(answer),
                pause=min(requested_pause(answer), LONGEST_PAUSE),  # a proxy does not know better
            )
        circuit.reached()
        if answer.status in BUSY and (rest := requested_pause(answer)):
            circuit.rest(rest, described(answer, url))
        if is_reply(answer) and answer.is_whole:
            try:
                return read(answer.content)
            except ReplyError as error:
                return VainAttempt(f"{described(answer, url)}: {error}", is_answer=True)
        return self._refusal(answer, url)

    def _refusal(self, answer: Answer, url: str) -> VainAttempt:
        """Return the failed attempt for an answer that is no reply of a function.

        Raises:
            CallFailedError: if the answer means that another attempt cannot succeed.
        """
        if not answer.is_whole and answer.status == HTTPStatus.OK:
            text = f"{described(answer, url)}; the answer has more than {self._endpoint.max_bytes:,} bytes"
            return VainAttempt(text, is_answer=True)
        is_again = answer.status == HTTPStatus.OK or answer.status in AGAIN
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR and not is_again:
            raise CallFailedError(described(answer, url))
        is_busy, wait = answer.status in BUSY, requested_pause(answer)
        return VainAttempt(described(answer, url), is_answer=True, is_busy=is_busy, pause=wait)


class _Call:
    """Decides after each attempt without a reply how a call goes on."""

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
        self._last_answer = ""
        """The endpoint's last answer that is no reply, as text; empty if it has not answered."""
        self._unanswered = ""
        """Why the last request got no answer, if the endpoint may still be working on it; else empty."""

    async def go_on(self, vain: VainAttempt) -> None:
        """Wait until the next attempt is due, if the call still has time for it in this micro-batch.

        Raises:
            Exception: as :meth:`Caller.call` does, if it has no more time.
        """
        budget = self._budget
        wait = pause_after(vain, budget)
        budget.attempts += 1
        text = f"{vain.text} (attempt {budget.attempts})" if budget.attempts > 1 else vain.text
        self._note(vain, text)
        if vain.is_own and await self._lacks_function():
            raise CallFailedError(f"{text}; it replies for other functions, and never for this one")
        is_last = vain.is_own and budget.attempts == budget.most_attempts
        if is_last or wait.total_seconds() >= budget.seconds:
            await self._end(vain, text, wait)
        budget.seconds -= wait.total_seconds()
        is_late = time.monotonic() + wait.total_seconds() > budget.hold_until
        if is_late and vain.pause and not vain.is_answer:
            self._rest(vain)
        if not (is_late and (vain.is_answer or vain.is_sent)):
            await asyncio.sleep(wait.total_seconds())
        elif vain.is_answer or await self._circuit.answers(self._probe):
            raise LaterError(text, wait)
        else:
            raise self._circuit.down_error()

    def record_down(self) -> None:
        """Record that the endpoint is down; if a request is unanswered, the endpoint went down during it.

        Raises:
            OutageError: if the endpoint went down during a call with ``Budget.is_alone``.
        """
        if self._unanswered:
            self._went_down(f"{self._unanswered}, and is down since")

    def _note(self, vain: VainAttempt, text: str) -> None:
        self._unanswered = "" if vain.is_answer else self._unanswered
        self._budget.was_away |= vain.is_broken or not vain.is_sent
        if vain.is_broken:
            self._unanswered = ""
            self._went_down(text)
        elif vain.is_own:
            self._last_answer = text
        elif vain.is_sent:
            self._unanswered = text

    def _went_down(self, text: str) -> None:
        self._budget.outage = text
        if self._budget.is_alone:
            raise OutageError(text)

    async def _lacks_function(self) -> bool:
        if self._is_unknown is None or self._budget.attempts < _FEW_ATTEMPTS:
            return False
        return await self._is_unknown()

    async def _end(self, vain: VainAttempt, text: str, wait: timedelta) -> NoReturn:
        """Raise the error that ends a call which gets no further attempt in this micro-batch."""
        if vain.is_own:
            raise CallFailedError(text)
        if vain.is_busy or vain.pause:
            self._rest(vain)
        # If the endpoint does not even answer a probe, it is down, and no message has failed.
        if not await self._circuit.answers(self._probe):
            raise self._circuit.down_error()
        if self._budget.was_away and not self._last_answer:
            raise LaterError(text, wait)  # it could not be reached for a part of the time
        # The last attempt may have had too little time; an earlier answer says more.
        raise CallFailedError(self._last_answer or text, is_final=bool(self._last_answer))

    def _rest(self, vain: VainAttempt) -> NoReturn:
        """Let all calls wait for as long as the answer asks for."""
        self._budget.has_to_rest = vain.is_broken
        self._circuit.rest(max(vain.pause, SHORTEST_PAUSE), vain.text)
        raise self._circuit.down_error()
