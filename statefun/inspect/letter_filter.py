# SPDX-License-Identifier: Apache-2.0
"""Selects the dead letters that a command lists, replays or drops."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

import attrs

from statefun.inspect.dead_letter import DeadLetter
from statefun.module.yaml.durations import parse_duration


@attrs.frozen
class LetterFilter:
    """Conditions that a letter has to meet; a condition that is None is not checked."""

    ids: frozenset[str] | None = None
    function: str | None = None
    """The typename of the letter's target, or its address."""
    error: str | None = None
    """The code of the letter's error, or the class of the exception."""
    topic: str | None = None
    """The topic of the letter's record."""
    since: datetime | None = None
    """The letter's time is this time or a later one."""
    until: datetime | None = None
    """The letter's time is before this time."""

    @classmethod
    def of(cls, ids: Iterable[str]) -> LetterFilter:
        """Return the filter for letters with one of these ids."""
        return cls(frozenset(ids))

    @property
    def is_empty(self) -> bool:
        """Whether all letters pass."""
        return self == LetterFilter()

    def __call__(self, letter: DeadLetter) -> bool:
        """Return whether a letter meets all conditions."""
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
    """Read a time in ISO 8601 (in UTC unless it names another zone), or a duration before now.

    >>> now = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
    >>> print(parse_moment("2h", now), parse_moment("2026-05-03", now))
    2026-05-04 10:00:00+00:00 2026-05-03 00:00:00+00:00

    Raises:
        ValueError: if the text is neither of them.
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
            f"{text!r} is not a time: write a time such as 2026-05-04T12:30 (UTC), or a duration "
            "before now, such as 90min, 12h or 7d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
