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

from statefun.module.model import Endpoint, without_login
from statefun.remote.circuit import Circuit
from statefun.remote.exchange import ReplyError
from statefun.remote.http_client import Answer, HttpClient, NoConnectionError, NoReplyError

T = TypeVar("T")

_FIRST_PAUSE = timedelta(milliseconds=10)
_LONGEST_PAUSE = timedelta(seconds=5)
_PROBE_TIME = timedelta(seconds=5)
_SHOWN_BYTES = 200
_AGAIN = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS,
    420,  # an older 429 of some services
    499,  # a proxy's word for a connection that was broken off
}
_NOBODY_THERE = {
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""The statuses with which a proxy answers for a server that is down."""


class CallFailedError(Exception):
    """A call has failed for good; the text continues "endpoint ..."."""


class Budget(NamedTuple):
    """The limits of a call."""

    deadline: float
    """When it has to be done, by ``time.monotonic``."""
    attempts: int | None = None
    """How often to try; None for as often as there is time."""

    @classmethod
    def of(cls, duration: timedelta, attempts: int | None = None) -> Budget:
        """Return a budget that begins now."""
        return cls(time.monotonic() + duration.total_seconds(), attempts)

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return self.deadline - time.monotonic()


class _Trouble(NamedTuple):
    """Why an attempt was in vain."""

    text: str
    is_answer: bool
    """Whether the endpoint has answered at all."""
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
        self._circuit = Circuit(without_login(endpoint.url_template))

    async def call(
        self,
        url: str,
        body: bytes,
        empty: Callable[[], bytes],
        budget: Budget,
        read: Callable[[bytes], T],
    ) -> T:
        """Send a request until there is a reply, and return what ``read`` makes of it.

        Args:
            url: the URL of the function.
            body: the request.
            empty: returns a request without messages, which asks whether the endpoint is there.
            budget: the limits of the call.
            read: reads a reply; it raises a ReplyError if the reply is none.

        Raises:
            CallFailedError: if the endpoint answers, but with no reply.
            EndpointDownError: if it cannot be reached.
        """
        pause, tries = _FIRST_PAUSE, 0

        async def probe() -> str | None:
            return await self.probe(url, empty())

        while True:
            await self._circuit.admit(probe)
            outcome = await self._attempt(url, body, budget, read)
            if not isinstance(outcome, _Trouble):
                return outcome
            tries += 1
            wait = max(pause * random.uniform(0.5, 1.5), outcome.pause)  # noqa: S311 - jitter
            pause = min(pause * 2, _LONGEST_PAUSE)
            if wait.total_seconds() >= budget.left or tries == budget.attempts:
                # An endpoint that does not answer any request is down; that is not its function's
                # failure.
                if not outcome.is_answer and not await self._circuit.answers(probe):
                    await self._circuit.admit(probe)
                text = (
                    f"{outcome.text} (the last of {tries} attempts)" if tries > 1 else outcome.text
                )
                raise CallFailedError(text)
            await asyncio.sleep(wait.total_seconds())

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

    async def _attempt(
        self, url: str, body: bytes, budget: Budget, read: Callable[[bytes], T]
    ) -> T | _Trouble:
        try:
            answer = await self._client.post(url, body, max(budget.left, 0.001))
        except NoConnectionError as error:
            self._circuit.not_reached(str(error))
            return _Trouble(str(error), is_answer=False)
        except NoReplyError as error:
            return _Trouble(str(error), is_answer=False)
        if answer.status in _NOBODY_THERE:
            self._circuit.not_reached(_described(answer))
            return _Trouble(_described(answer), is_answer=False, pause=_asked_for(answer))
        self._circuit.reached()
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
        return _Trouble(_described(answer), is_answer=True, pause=_asked_for(answer))


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
