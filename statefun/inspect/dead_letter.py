# SPDX-License-Identifier: Apache-2.0
"""A dead letter: a record that holds a message that was not handled, and facts about the failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs

from statefun.engine.letters import (
    CUT,
    ENCODED_HEADER,
    HEADER_PREFIX,
    LEFT_OUT,
    TARGET_TYPE_HEADER,
)
from statefun.sdk.times import EPOCH, from_epoch_millis

LetterHeaders = list[tuple[str, str | bytes | None]]


@attrs.frozen
class DeadLetter:
    """A message or record that was not handled."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: LetterHeaders
    """The headers of the record that was not handled."""
    facts: dict[str, str]
    """The facts about the failure, by the names of their headers without the prefix."""

    @property
    def id(self) -> str:
        """The letter's place in the dead-letter topic: ``<partition>/<offset>``."""
        return f"{self.partition}/{self.offset}"

    @classmethod
    def of(
        cls,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, str | bytes | None]],
    ) -> DeadLetter:
        """Read a letter from its record; any record is a letter, whatever its headers hold."""
        return cls(
            partition,
            offset,
            key,
            value,
            [each for each in headers if not each[0].startswith(HEADER_PREFIX)],
            {
                name.removeprefix(HEADER_PREFIX): header_text(value)
                for name, value in headers
                if name.startswith(HEADER_PREFIX)
            },
        )

    @property
    def time(self) -> datetime:
        """When the message became a dead letter; 1970 if the header is missing or malformed."""
        return self.moment("time") or EPOCH

    def moment(self, name: str) -> datetime | None:
        """Return a fact that is a time; None if it is missing or malformed."""
        try:
            return from_epoch_millis(int(self.facts[name]))
        except (KeyError, ValueError, OverflowError):
            return None

    @property
    def age_order(self) -> tuple[datetime, int, int]:
        """The sort key of letters, oldest first."""
        return self.time, self.partition, self.offset

    @property
    def target_type(self) -> str | None:
        """The typename of the target function; None if the letter has no target."""
        return self.facts.get(TARGET_TYPE_HEADER.removeprefix(HEADER_PREFIX))

    @property
    def target_id(self) -> bytes | None:
        """The id of the target; None if the letter lacks it: then it is the record's key."""
        if "target" in self.facts.get(CUT, "").split(","):
            return None
        target, typename = self.facts.get("target", ""), f"{self.target_type}/"
        return target.removeprefix(typename).encode() if target.startswith(typename) else None

    @property
    def is_encoded(self) -> bool:
        """Whether the value is a record's value, which a deserializer has to read."""
        return ENCODED_HEADER.removeprefix(HEADER_PREFIX) in self.facts

    @property
    def left_out(self) -> frozenset[str]:
        """The parts of the record that the letter lacks, because it was too large."""
        return frozenset(filter(None, self.facts.get(LEFT_OUT, "").split(",")))


def header_text(value: str | bytes | None) -> str:
    """Return the value of a header as text."""
    return value if isinstance(value, str) else (value or b"").decode(errors="backslashreplace")
