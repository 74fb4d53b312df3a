# SPDX-License-Identifier: Apache-2.0
"""What becomes of attempts to call an endpoint, and the limits of a call."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

import attrs

from statefun.remote.http_client import BYTES, Answer
from statefun.sdk.shown_uris import without_secrets

_FIRST_PAUSE = timedelta(milliseconds=10)
_LONGEST_PAUSE = timedelta(seconds=5)
_MOST_DOUBLINGS = 10
_SHOWN_BYTES = 200
BUSY = {HTTPStatus.TOO_MANY_REQUESTS, 420}
"""The statuses of a server that has too much to do: 420 is an older 429 of some services."""
_BROKEN = 499
"""A proxy's word for a connection that broke."""
AGAIN = {*BUSY, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, _BROKEN}
NOBODY_THERE = {
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
"""The statuses with which a proxy answers for a server that is down."""
BROKEN_BEHIND = {HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT}
"""Those that it also answers when the server has broken the connection, or went down."""


class CallFailedError(Exception):
    """A call has failed; the text continues "endpoint ..."."""

    def __init__(self, text: str, *, is_final: bool = True) -> None:
        super().__init__(text)
        self.is_final = is_final
        """Whether the endpoint has answered; else there was only so much time."""


class LaterError(Exception):
    """A call is to be tried again, but not while others wait; the text continues "endpoint ..."."""

    def __init__(self, text: str, wait: timedelta) -> None:
        super().__init__(text)
        self.wait = wait


class OutageError(Exception):
    """The endpoint went down with a request; the text continues "endpoint ..."."""


@attrs.define
class Budget:
    """The limits of one or several calls. What waits for a connection does not use it up."""

    left: float
    """Seconds."""
    most_attempts: int | None = None
    """How often each call tries; None for as often as there is time."""
    hold_until: float = math.inf
    """Until when others may be held up by attempts in vain, by ``time.monotonic``."""
    is_alone: bool = False
    """Whether the endpoint is called for nothing else, and for one message."""
    attempts: int = 0
    """How often the call that is under way was tried."""
    outage: str = ""
    """How the endpoint went down with a request since its last reply, if it did."""
    was_away: bool = False
    """Whether the endpoint was away for a part of the call that is under way."""

    @classmethod
    def of(cls, duration: timedelta, most_attempts: int | None = None) -> Budget:
        """Return an unused budget."""
        return cls(duration.total_seconds(), most_attempts)


class Vain(NamedTuple):
    """Why an attempt was in vain."""

    text: str
    is_answer: bool
    """Whether the endpoint has answered at all."""
    is_sent: bool = True
    """Whether it has got the request."""
    is_broken: bool = False
    """Whether the connection broke, perhaps while the request was under way."""
    is_busy: bool = False
    pause: timedelta = timedelta(0)
    """How long the endpoint has asked to wait."""


def pause_after(attempts: int) -> timedelta:
    """Return the pause after so many attempts before the last one."""
    doublings = min(attempts, _MOST_DOUBLINGS)
    pause: timedelta = min(_FIRST_PAUSE * 2**doublings, _LONGEST_PAUSE)
    return pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter


def is_reply(answer: Answer) -> bool:
    """Return whether an answer says that it is one of a function."""
    return answer.status == HTTPStatus.OK and answer.content_type == BYTES


def described(answer: Answer, url: str) -> str:
    """Return an answer's status, type and first bytes; the text continues "endpoint ...".

    A server may quote the URL that it was called by.
    """
    try:
        phrase = f" {HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    text = answer.content[: 10 * _SHOWN_BYTES].decode(errors="replace").strip()
    text = without_secrets(text, url)[:_SHOWN_BYTES]
    if not text and answer.status != HTTPStatus.OK:
        return f"has answered {answer.status}{phrase}"
    kind = answer.content_type or "no content type"
    return f"has answered {answer.status}{phrase} ({kind}): {text or 'no bytes'}"


def asked_for(answer: Answer) -> timedelta:
    """Return how long to wait, as the header Retry-After says: in seconds, or until a date."""
    text = answer.retry_after or ""
    try:
        if text.strip().isdecimal():
            return timedelta(seconds=int(text))
        date = parsedate_to_datetime(text)
        return max(date - datetime.now(timezone.utc), timedelta(0))
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
