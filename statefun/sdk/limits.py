# SPDX-License-Identifier: Apache-2.0
"""Limits how often functions are called, to protect the services that the functions call."""

from __future__ import annotations

from datetime import timedelta

import attrs

from statefun.sdk.errors import DefinitionError


@attrs.frozen
class RateLimit:
    """How many calls of coroutine functions a worker process may begin in a period of time.

    A call is one invocation batch: the messages of one address. Calls beyond the limit wait, and
    may leave their micro-batch while they wait.

    >>> RateLimit(100, per=timedelta(minutes=1)).interval
    datetime.timedelta(microseconds=600000)

    Raises:
        DefinitionError: if ``calls`` is not a whole number from 1 up, or ``per`` is not positive.
    """

    calls: int
    """The largest number of calls that may begin in a period of the length ``per``."""
    per: timedelta = timedelta(seconds=1)
    """The length of the period in which at most ``calls`` calls may begin."""
    resource: str | None = None
    """The name of a resource, such as a service: functions with the same resource share one limit."""

    def __attrs_post_init__(self) -> None:
        if not _is_count(self.calls):
            raise DefinitionError(
                f"the calls of a rate limit must be a whole number from 1 up, not {self.calls!r}"
            )
        if not (isinstance(self.per, timedelta) and self.per > timedelta(0)):
            raise DefinitionError(
                f"the time of a rate limit (per) must be a positive timedelta, not {self.per!r}"
            )

    @property
    def interval(self) -> timedelta:
        """The time from the start of one call to the start of the next, at an even rate: ``per / calls``."""
        return self.per / self.calls


def check_limits(
    timeout: object, detach_after: object, max_in_flight: object, rate_limit: object
) -> None:
    """Check the limits in the registration of a function.

    Raises:
        DefinitionError: if a limit has a wrong type, or a value that is out of range.
    """
    if not (timeout is None or (isinstance(timeout, timedelta) and timeout > timedelta(0))):
        raise DefinitionError(f"a timeout must be a positive timedelta or None, not {timeout!r}")
    if not (isinstance(detach_after, timedelta) and detach_after >= timedelta(0)):
        raise DefinitionError(
            f"detach_after must be a timedelta of zero or more, not {detach_after!r}"
        )
    if not (max_in_flight is None or _is_count(max_in_flight)):
        raise DefinitionError(
            f"max_in_flight must be a whole number from 1 up or None, not {max_in_flight!r}"
        )
    if not isinstance(rate_limit, RateLimit | None):
        raise DefinitionError(f"rate_limit must be a RateLimit or None, not {rate_limit!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
