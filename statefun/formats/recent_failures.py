# SPDX-License-Identifier: Apache-2.0
"""Remembers for a short time which requests to a schema registry have failed, and why.

A topic may be full of values whose schema is unknown, or whose registry does not answer; a request to the
registry for each value would take too long.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from datetime import timedelta

from statefun.sdk.bounded_map import BoundedMap

_Failure = tuple[float, type[Exception], tuple[object, ...]]


class RecentFailures:
    """The errors of requests that have failed recently.

    >>> failures = RecentFailures()
    >>> failures.add("schema 7", ValueError("there is none"), timedelta(seconds=5))
    >>> failures.check("schema 8")
    >>> failures.check("schema 7")
    Traceback (most recent call last):
    ValueError: there is none
    """

    def __init__(self) -> None:
        self._errors: BoundedMap[Hashable, _Failure] = BoundedMap()
        """For each request, the time until which it counts as failed, and the class and arguments of its error.

        The error itself would keep the values of all variables alive that its traceback refers to. Malformed values may
        contain any number of unknown ids.
        """

    def check(self, request: Hashable) -> None:
        """Raise the error of a request that has failed recently, without its cause; otherwise do nothing."""
        found = self._errors.get(request)
        if found is not None and time.monotonic() < found[0]:
            raise found[1](*found[2])

    def add(self, request: Hashable, error: Exception, period: timedelta) -> None:
        """Remember for a period that a request has failed with an error."""
        self._errors[request] = (
            time.monotonic() + period.total_seconds(),
            type(error),
            error.args,
        )
