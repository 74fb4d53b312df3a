# SPDX-License-Identifier: Apache-2.0
"""Calls of an endpoint: attempts with growing pauses, within the time that a call may take.

Stateful Functions 3.x tries again after errors of the connection and after the statuses below; the
pauses between attempts begin at 10 ms and double. Here a reply that is none is tried again as well.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple, TypeVar

import attrs

from statefun.module.model import Endpoint
from statefun.module.urls import without_login
from statefun.remote.circuit import SHORTEST_PAUSE, Circuit, EndpointDownError
from statefun.remote.exchange import ReplyError
from statefun.remote.http_client import Answer, HttpClient, NoConnectionError, NoReplyError

T = TypeVar("T")

_FIRST_PAUSE = timedelta(milliseconds=10)
_LONGEST_PAUSE = timedelta(seconds=5)
_PROBE_TIME = timedelta(seconds=5)
_SHOWN_BYTES = 200
_BUSY = {HTTPStatus.TOO_MANY_REQUESTS, 420}
"""The statuses of a server that has too much to do: 420 is an older 429 of some services."""
_BROKEN = 499
"""A proxy's word for a connection that broke."""
_AGAIN = {*_BUSY, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, _BROKEN}
_NOBODY_THERE = {
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""The statuses with which a proxy answers for a server that is down."""


class CallFailedError(Exception):
    """A call has failed; the text continues "endpoint ..."."""

    def __init__(self, text: str, *, is_final: bool = True) -> None:
        super().__init__(text)
        self.is_final = is_final
        """Whether the endpoint has answered; else there was only so much time."""


@attrs.define
class Budget:
    """The limits of one or several calls. What waits for a connection does not use it up."""

    left: float
    """Seconds."""
    attempts: int | None = None
    """How often each call tries; None for as often as there is time."""

    @classmethod
    def of(cls, duration: timedelta, attempts: int | None = None) -> Budget:
        """Return an unused budget."""
        return cls(duration.total_seconds(), attempts)


class _Trouble(NamedTuple):
    """Why an attempt was in vain."""

    text: str
    is_answer: bool
    """Whether the endpoint has answered at all."""
    is_sent: bool = True
    """Whether it has got the request."""
    is_busy: bool = False
    pause: timedelta = timedelta(0)
    """How long the endpoint has asked to wait."""


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

    async def call(  # noqa: PLR0913 - the parts of a call
        self,
        url: str,
        body: bytes,
        empty: Callable[[], bytes],
        budget: Budget,
        read: Callable[[bytes], T],
        *,
        is_suspect: bool = False,
    ) -> T:
        """Send a request until there is a reply, and return what ``read`` makes of it.

        Args:
            url: the URL of the function.
            body: the request.
            empty: returns a request without messages, which asks whether the endpoint is there.
            budget: the limits of the call.
            read: reads a reply; it raises a ReplyError if the reply is none. What else it raises
                ends the call.
            is_suspect: whether an endpoint that is down after the request has got it from that, and
                not by chance.

        Raises:
            CallFailedError: if the endpoint answers, but with no reply.
            EndpointDownError: if it cannot be reached, or asks for more time than there is.
        """
        circuit = self._circuit(url)
        pause, tries, is_sent, text = _FIRST_PAUSE, 0, False, ""
        answered = ""  # what the endpoint has last answered, though with no reply

        async def probe() -> str | None:
            return await self.probe(url, empty())

        while True:
            try:
                await circuit.admit(probe, was_sent=is_sent)
                async with self._client.connection():
                    await circuit.admit(probe, was_sent=is_sent)  # it may have opened meanwhile
                    begun = time.monotonic()
                    outcome = await self._attempt(url, circuit, body, budget.left, read)
                    budget.left -= time.monotonic() - begun
            except EndpointDownError as down:
                if is_suspect and down.was_sent:
                    raise CallFailedError(f"{text}, and is down since") from None
                raise
            if not isinstance(outcome, _Trouble):
                return outcome
            tries += 1
            is_sent = not outcome.is_answer and (is_sent or outcome.is_sent)
            wait = max(pause * random.uniform(0.5, 1.5), outcome.pause)  # noqa: S311 - jitter
            pause = min(pause * 2, _LONGEST_PAUSE)
            text = f"{outcome.text} (the last of {tries} attempts)" if tries > 1 else outcome.text
            is_its_own = outcome.is_answer and not outcome.is_busy
            answered = text if is_its_own else answered
            if wait.total_seconds() < budget.left and not (is_its_own and tries == budget.attempts):
                await asyncio.sleep(wait.total_seconds())
                budget.left -= wait.total_seconds()
                continue
            if is_its_own or (is_suspect and is_sent):
                raise CallFailedError(text)
            if outcome.is_busy or outcome.pause:
                circuit.rest(max(outcome.pause, SHORTEST_PAUSE), outcome.text)
                raise circuit.down()
            # An endpoint that answers nothing at all is down, which is not its function's failure.
            if not await circuit.answers(probe):
                raise circuit.down(was_sent=is_sent)
            # The last attempt may have had too little time; an answer before says more than that.
            raise CallFailedError(answered or text, is_final=bool(answered))

    async def probe(self, url: str, empty: bytes) -> str | None:
        """Ask the endpoint whether it is there; return why not, or None."""
        try:
            answer = await self._client.post(url, empty, _PROBE_TIME.total_seconds())
        except (NoConnectionError, NoReplyError) as error:
            return str(error)
        return _described(answer) if answer.status in _NOBODY_THERE else None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _circuit(self, url: str) -> Circuit:
        circuit = self._circuits.get(url)
        if circuit is None:
            circuit = self._circuits[url] = Circuit(without_login(url))
        return circuit

    async def _attempt(
        self, url: str, circuit: Circuit, body: bytes, left: float, read: Callable[[bytes], T]
    ) -> T | _Trouble:
        try:
            answer = await self._client.post(url, body, max(left, 0.001))
        except NoConnectionError as error:
            circuit.not_reached(str(error))
            return _Trouble(str(error), is_answer=False, is_sent=False)
        except NoReplyError as error:
            return _Trouble(str(error), is_answer=False)
        if answer.status in _NOBODY_THERE:
            circuit.not_reached(_described(answer))
            wait = _asked_for(answer)
            return _Trouble(_described(answer), is_answer=False, is_sent=False, pause=wait)
        circuit.reached()
        if answer.status == HTTPStatus.OK and answer.is_whole:
            try:
                return read(answer.content)
            except ReplyError as error:
                return _Trouble(f"has answered with {error}", is_answer=True)
        return self._refusal(answer)

    def _refusal(self, answer: Answer) -> _Trouble:
        """Return what an answer without a reply means.

        Raises:
            CallFailedError: if another attempt would be in vain.
        """
        if answer.status == HTTPStatus.OK:
            text = f"has answered with more than {self._endpoint.max_bytes:,} bytes"
            return _Trouble(text, is_answer=True)
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR and answer.status not in _AGAIN:
            raise CallFailedError(_described(answer))
        is_busy, wait = answer.status in _BUSY, _asked_for(answer)
        return _Trouble(_described(answer), is_answer=True, is_busy=is_busy, pause=wait)


def _described(answer: Answer) -> str:
    try:
        phrase = f" {HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    text = answer.content[:_SHOWN_BYTES].decode(errors="replace").strip()
    return f"has answered {answer.status}{phrase}{f': {text}' if text else ''}"


def _asked_for(answer: Answer) -> timedelta:
    """Return how long to wait, as the header Retry-After says: in seconds, or until a date."""
    text = answer.retry_after or ""
    try:
        if text.strip().isdecimal():
            return timedelta(seconds=int(text))
        date = parsedate_to_datetime(text)
        return max(date - datetime.now(timezone.utc), timedelta(0))
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
