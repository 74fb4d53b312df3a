# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for their time, in the order in which they become due."""

from __future__ import annotations

import heapq
from datetime import datetime
from typing import Generic, TypeVar

T = TypeVar("T")
Token = tuple[str, str]
"""The id of the sender, and its cancellation token."""


class Timetable(Generic[T]):
    """Delayed messages; each may have a token that cancels it."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Token | None]] = []
        self._waiting: dict[int, T] = {}
        self._tokens: dict[Token, int] = {}
        self._count = 0

    def add(self, due: datetime, message: T, token: Token | None = None) -> None:
        """Let a message wait; messages that are due together come in the order of these calls."""
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, token))
        self._waiting[self._count] = message
        if token is not None:
            self._tokens[token] = self._count

    def is_taken(self, token: Token) -> bool:
        """Tell whether a message waits with that token."""
        return token in self._tokens

    def cancel(self, token: Token) -> None:
        """Drop the message that waits with that token, if there is one."""
        number = self._tokens.pop(token, None)
        if number is not None:
            del self._waiting[number]

    def next_due(self) -> datetime | None:
        """Return when the next message is due; None if none waits."""
        while self._heap and self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self) -> T:
        """Remove and return the message that :meth:`next_due` is about."""
        _, number, token = heapq.heappop(self._heap)
        if token is not None:
            del self._tokens[token]
        return self._waiting.pop(number)
