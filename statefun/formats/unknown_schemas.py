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
"""How long a schema counts as unknown; the registry is asked again afterwards."""
_MOST = 10_000
"""The largest number of schemas to remember, as malformed values may contain any number of unknown ids."""


class UnknownSchemas:
    """The schemas that a registry did not know when it was asked in the last five seconds.

    >>> unknown = UnknownSchemas()
    >>> unknown.add(7)
    >>> unknown.has(7), unknown.has(8)
    (True, False)
    """

    def __init__(self) -> None:
        self._since: dict[Hashable, float] = {}

    def has(self, schema: Hashable) -> bool:
        """Return whether the registry did not know a schema in the last five seconds."""
        since = self._since.get(schema)
        return since is not None and time.monotonic() - since < _REMEMBERED.total_seconds()

    def add(self, schema: Hashable) -> None:
        """Remember that the registry does not know a schema at present."""
        if len(self._since) >= _MOST:
            self._since.clear()
        self._since[schema] = time.monotonic()
