# SPDX-License-Identifier: Apache-2.0
"""The schemas that a registry did not know a moment ago.

A topic may be full of values whose schema is unknown; a question for each would take longer than the
values do.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from datetime import timedelta

_REMEMBERED = timedelta(seconds=5)
"""A schema may be registered meanwhile."""
_MOST = 10_000
"""Bytes that are no number of a schema look like any."""


class UnknownSchemas:
    """What is unknown, for a short time.

    >>> unknown = UnknownSchemas()
    >>> unknown.add(7)
    >>> unknown.has(7), unknown.has(8)
    (True, False)
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def has(self, schema: Hashable) -> bool:
        """Return whether a schema was unknown a moment ago."""
        since = self._since.get(schema)
        return since is not None and time.monotonic() - since < _REMEMBERED.total_seconds()

    def add(self, schema: Hashable) -> None:
        """Take note that a schema is unknown now."""
        if len(self._since) >= _MOST:
            self._since.clear()
        self._since[schema] = time.monotonic()
