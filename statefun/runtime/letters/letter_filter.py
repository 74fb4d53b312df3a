# SPDX-License-Identifier: Apache-2.0
"""Filters for the dead letters that a command lists, replays or drops."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone

import attrs

from statefun.module.yaml.durations import parse_duration
from statefun.runtime.letters.dead_letter import DeadLetter

_ID = re.compile(r"(\d{1,9})/(\d{1,18})", re.ASCII)
"""The id of a letter: its partition and offset."""


@attrs.frozen
class LetterFilter:
    """Conditions that a dead letter must meet; a condition that is None is not checked."""

    ids: frozenset[str] | None = None
    function: str | None = None
    """The typename or the address of the letter's target."""
    error: str | None = None
    """The code of the letter's error, such as SF302, or the name of its exception's class."""
    topic: str | None = None
    """The topic of the letter's original record."""
    since: datetime | None = None
    """The earliest time at which a message must have become a dead letter."""
    until: datetime | None = None
    """The time before which a message must have become a dead letter."""

    @classmethod
    def of(cls, ids: Iterable[str]) -> LetterFilter:
        """Return the filter for letters with one of these ids."""
        return cls(frozenset(ids))

    def first_offsets(self) -> dict[int, int]:
        """Return, for each partition, the smallest offset among the ids of the filter.

        >>> LetterFilter.of(["0/17", "0/4", "2/5", "seventeen"]).first_offsets()
        {0: 4, 2: 5}
        """
        places = (_ID.fullmatch(id_) for id_ in self.ids or ())
        offsets: dict[int, int] = {}
        for partition, offset in sorted((int(each[1]), int(each[2])) for each in places if each):
            offsets.setdefault(partition, offset)
        return offsets

    @property
    def is_empty(self) -> bool:
        """Whether the filter has no condition, so that all letters pass."""
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


def past_moment(text: str) -> datetime:
    """Return the time that a text means; a duration counts back from the present. See :func:`parse_moment`.

    >>> past_moment("2h") < datetime.now(timezone.utc)
    True
    """
    return parse_moment(text, datetime.now(timezone.utc))


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the time that a text means: a time in ISO 8601, by default in UTC, or a duration before now.

    >>> now = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
    >>> print(parse_moment("2h", now), parse_moment("2026-05-03", now))
    2026-05-04 10:00:00+00:00 2026-05-03 00:00:00+00:00

    Raises:
        ValueError: if the text is neither a time nor a duration.
    """
    try:
        moment = datetime.fromisoformat(text.strip().upper().replace("Z", "+00:00"))
    except ValueError:
        if not text.strip().isdecimal():  # a number without a unit is ambiguous
            try:
                return now - parse_duration(text)
            except (ValueError, OverflowError):
                pass
        raise ValueError(
            f"{text!r} is not a time: write a time such as 2026-05-04T12:30 (UTC), or a duration "
            "before now, such as 90min, 12h or 7d"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
