# SPDX-License-Identifier: Apache-2.0
"""Remembers for a short time which schemas a registry does not know.

A topic may be full of values whose schema is unknown; a request to the registry for each value would
take too long.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from datetime import timedelta

_REMEMBERED = timedelta(seconds=5)
"""How long a schema counts as unknown; it may be registered after that."""
_MOST = 10_000
"""The largest number of schemas: malformed values look like values with any schema."""


class UnknownSchemas:
    """Schemas that a registry did not know a moment ago.

    >>> unknown = UnknownSchemas()
    >>> unknown.add(7)
    >>> unknown.has(7), unknown.has(8)
    (True, False)
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def has(self, schema: Hashable) -> bool:
        """Return whether the registry did not know a schema a moment ago."""
        since = self._since.get(schema)
        return since is not None and time.monotonic() - since < _REMEMBERED.total_seconds()

    def add(self, schema: Hashable) -> None:
        """Add a schema that the registry does not know now."""
        if len(self._since) >= _MOST:
            self._since.clear()
        self._since[schema] = time.monotonic()
