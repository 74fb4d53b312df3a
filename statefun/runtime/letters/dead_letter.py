# SPDX-License-Identifier: Apache-2.0
"""A dead letter: a record of a dead-letter topic with a failed message, and facts about the failure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs

from statefun.engine.letters import (
    CUT,
    ENCODED_HEADER,
    HEADER_PREFIX,
    LEFT_OUT,
    SECRET_HEADER,
    TARGET_TYPE_HEADER,
)
from statefun.sdk.times import EPOCH, from_epoch_millis

LetterHeaders = list[tuple[str, str | bytes | None]]


@attrs.frozen
class DeadLetter:
    """A dead letter: a message whose function failed, or a rejected or refused record.

    ``key``, ``value`` and ``headers`` are those of the original record.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: LetterHeaders
    """The headers of the original record, without those that statefun has added."""
    facts: dict[str, str]
    """The facts about the failure, such as ``error-code``: statefun's own headers, without their prefix."""

    @property
    def id(self) -> str:
        """The id of the letter: its position in the dead-letter topic, ``<partition>/<offset>``."""
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
        """Make a letter from a record of the dead-letter topic, whose headers may lack facts."""
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
        """Return the time that a fact holds, given its name; None if the fact is missing or malformed."""
        try:
            return from_epoch_millis(int(self.facts[name]))
        except (KeyError, ValueError, OverflowError):
            return None

    @property
    def age_order(self) -> tuple[datetime, int, int]:
        """A key with which letters are sorted from the oldest to the newest."""
        return self.time, self.partition, self.offset

    @property
    def target_type(self) -> str | None:
        """The typename of the target function; None if the letter has no target."""
        return self.facts.get(TARGET_TYPE_HEADER.removeprefix(HEADER_PREFIX))

    @property
    def target_id(self) -> bytes | None:
        """The id of the target; None if the letter does not hold it, because it equals ``key``."""
        if "target" in self.facts.get(CUT, "").split(","):
            return None
        target, typename = self.facts.get("target", ""), f"{self.target_type}/"
        return target.removeprefix(typename).encode() if target.startswith(typename) else None

    @property
    def is_encoded(self) -> bool:
        """Whether ``value`` is the value of a record that no deserializer has decoded yet."""
        return ENCODED_HEADER.removeprefix(HEADER_PREFIX) in self.facts

    @property
    def is_secret(self) -> bool:
        """Whether ``value`` must not be shown."""
        return SECRET_HEADER.removeprefix(HEADER_PREFIX) in self.facts

    @property
    def left_out(self) -> frozenset[str]:
        """The names of the parts of the original record that were left out, as it was too large."""
        return frozenset(filter(None, self.facts.get(LEFT_OUT, "").split(",")))


def header_text(value: str | bytes | None) -> str:
    """Return the value of a header as text; bytes that are not UTF-8 are escaped."""
    return value if isinstance(value, str) else (value or b"").decode(errors="backslashreplace")
