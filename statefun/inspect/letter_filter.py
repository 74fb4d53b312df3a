# SPDX-License-Identifier: Apache-2.0
"""Which dead letters a command is about."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

import attrs

from statefun.inspect.dead_letter import DeadLetter
from statefun.module.yaml.durations import parse_duration


@attrs.frozen
class LetterFilter:
    """What letters have in common; what is None does not matter."""

    ids: frozenset[str] | None = None
    function: str | None = None
    """The typename of their target, or its address."""
    error: str | None = None
    """The code of their error, or the class of the exception."""
    topic: str | None = None
    """The topic that they came from."""
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, ids: Iterable[str]) -> LetterFilter:
        """Return the filter that lets letters of these ids through."""
        return cls(frozenset(ids))

    @property
    def takes_all(self) -> bool:
        """Whether it lets all letters through."""
        return self == LetterFilter()

    def __call__(self, letter: DeadLetter) -> bool:
        """Return whether it lets a letter through."""
        facts = letter.facts
        return (
            (self.ids is None or letter.id in self.ids)
            and self.function in {None, letter.target_type, facts.get("target")}
            and self.error in {None, facts.get("error-code"), facts.get("error-type")}
            and self.topic in {None, facts.get("topic")}
            and (self.since is None or self.since <= letter.time)
            and (self.until is None or letter.time < self.until)
        )


def parse_moment(text: str, now: datetime) -> datetime:
    """Read a time: in ISO 8601, in UTC if it names no other zone, or as a duration before now.

    >>> now = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
    >>> print(parse_moment("2h", now), parse_moment("2026-05-03", now))
    2026-05-04 10:00:00+00:00 2026-05-03 00:00:00+00:00

    Raises:
        ValueError: if it is neither.
    """
    try:
        moment = datetime.fromisoformat(text.strip().upper().replace("Z", "+00:00"))
    except ValueError:
        if not text.strip().isdecimal():  # a number alone may be anything
            try:
                return now - parse_duration(text)
            except (ValueError, OverflowError):
                pass
        raise ValueError(
            f"{text!r} is no time: write one such as 2026-05-04T12:30, which is in UTC, or how long "
            "ago it was, such as 90min, 12h or 7d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
