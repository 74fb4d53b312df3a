# SPDX-License-Identifier: Apache-2.0
"""Attempts to call an endpoint: their results, the pauses between them, and the limits of a call."""

from __future__ import annotations

import math
import random
import re
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

import attrs

from statefun.remote.http_client import BYTES, Answer
from statefun.sdk.printable import printable
from statefun.sdk.shown_uris import without_secrets

_FIRST_PAUSE = timedelta(milliseconds=10)
_LONGEST_PAUSE = timedelta(seconds=5)
_MOST_DOUBLINGS = 10
_SHOWN_BYTES = 200
BUSY = {HTTPStatus.TOO_MANY_REQUESTS, 420}
"""The HTTP statuses of an overloaded server; some services answer 420, which is older than 429."""
_BROKEN = 499
"""The HTTP status with which some proxies answer when the connection to the server broke."""
AGAIN = {*BUSY, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, _BROKEN}
"""The HTTP statuses below 500 after which a request is sent again."""
NOBODY_THERE = {
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
    *range(520, 525),
    530,
}
"""The HTTP statuses with which a proxy answers for a server that is down; those from 520 on are Cloudflare's."""
_BROKEN_BEHIND = {HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT, 520, 524}
"""The statuses of ``NOBODY_THERE`` that a proxy also sends when its server goes down during a request."""
_RESET_BEHIND = re.compile(
    rb"upstream connect error or disconnect/reset before headers\. (?:retried and the latest )?"
    rb"reset reason: (?:connection termination|remote reset)\b"
)
"""The beginning of an answer of Envoy, with status 503, when its server ends the connection during a request.

With other reasons, such as "overflow" and "connection timeout", the server has not got the request.
"""


class CallFailedError(Exception):
    """A call has failed, and is not tried again; the error's text continues "endpoint <URL> ..."."""

    def __init__(self, text: str, *, is_final: bool = True) -> None:
        super().__init__(text)
        self.is_final = is_final
        """Whether an answer of the endpoint is the reason; False if the time was up without an answer."""


class LaterError(Exception):
    """A call has to be made again in a later micro-batch; its text continues "endpoint <URL> ..."."""

    def __init__(self, text: str, wait: timedelta) -> None:
        super().__init__(text)
        self.wait = wait
        """How long to wait before the next attempt."""


class OutageError(Exception):
    """The endpoint went down during a request; the error's text continues "endpoint <URL> ..."."""


@attrs.define
class Budget:
    """The limits of one call to an endpoint, which may need several attempts (requests).

    The time for which a call waits for a free connection is not limited here.
    """

    seconds: float
    """The time that remains, in seconds."""
    most_attempts: int | None = None
    """The largest number of attempts; None: only the time is limited."""
    hold_until: float = math.inf
    """Until when attempts without a reply may delay other addresses, on the clock ``time.monotonic``."""
    is_alone: bool = False
    """Whether the call has one message only, and its server is called for no other address meanwhile."""
    attempts: int = 0
    """The number of attempts of the present call so far."""
    outage: str = ""
    """The text about an outage since the endpoint's last reply; empty if there was no outage since then."""
    was_away: bool = False
    """Whether the endpoint could not be reached during a part of the present call."""
    has_to_rest: bool = False
    """Whether the call has ended early because a gateway, whose endpoint may have broken down, has asked for a pause."""

    @classmethod
    def of(cls, duration: timedelta, most_attempts: int | None = None) -> Budget:
        """Return the budget of a call that begins now."""
        return cls(duration.total_seconds(), most_attempts)


class VainAttempt(NamedTuple):
    """An attempt to call an endpoint that has brought no reply."""

    text: str
    """Why there is no reply; the text continues "endpoint <URL> ..."."""
    is_answer: bool
    """Whether the endpoint itself has answered, though with no reply of a function."""
    is_sent: bool = True
    """Whether the endpoint may have got the request."""
    is_broken: bool = False
    """Whether the connection broke, perhaps during the request."""
    is_busy: bool = False
    """Whether the endpoint has answered that it is overloaded."""
    pause: timedelta = timedelta(0)
    """The pause that the endpoint has asked for; zero if it has asked for none."""

    @property
    def is_own(self) -> bool:
        """Whether the endpoint has answered for this request, rather than that it is overloaded."""
        return self.is_answer and not self.is_busy


def pause_after(vain: VainAttempt, budget: Budget) -> timedelta:
    """Return the pause after an attempt that has brought no reply; it grows with the number of attempts.

    Args:
        vain: the attempt. It may have asked for a longer pause.
        budget: the limits of the call, with the number of attempts before this one.
    """
    doublings = min(budget.attempts, _MOST_DOUBLINGS)
    pause: timedelta = min(_FIRST_PAUSE * 2**doublings, _LONGEST_PAUSE)
    requested = vain.pause
    if vain.is_own:
        # It may be the answer to a message, which would fail without another attempt.
        requested = min(requested, _LONGEST_PAUSE, timedelta(seconds=budget.seconds / 2))
    return max(pause * random.uniform(0.5, 1.5), requested)  # noqa: S311 - jitter


def is_reply(answer: Answer) -> bool:
    """Return whether the status and type of an answer are those of a function's reply."""
    return answer.status == HTTPStatus.OK and answer.content_type == BYTES


def is_broken_behind(answer: Answer) -> bool:
    """Return whether a proxy's answer says that its server may have gone down during the request."""
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return _RESET_BEHIND.match(answer.content) is not None
    return answer.status in _BROKEN_BEHIND


def described(answer: Answer, url: str) -> str:
    """Return an answer's status, type and first bytes as text that continues "endpoint <URL> ...".

    The answer may quote the URL: secrets of the URL are removed.
    """
    try:
        phrase = f" {HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    text = answer.content[: 10 * _SHOWN_BYTES].decode(errors="replace").strip()
    text = printable(without_secrets(text, url)[:_SHOWN_BYTES])
    if not text and answer.status != HTTPStatus.OK:
        return f"has answered {answer.status}{phrase}"
    kind = printable(answer.content_type) or "no content type"
    return f"has answered {answer.status}{phrase} ({kind}): {text or 'no bytes'}"


def requested_pause(answer: Answer) -> timedelta:
    """Return the pause for which an answer asks by the header Retry-After (seconds or a date), or zero."""
    text = answer.retry_after or ""
    try:
        if text.strip().isdecimal():
            return timedelta(seconds=int(text))
        date = parsedate_to_datetime(text)
        return max(date - datetime.now(timezone.utc), timedelta(0))
    except (ValueError, TypeError, OverflowError):
        return timedelta(0)
