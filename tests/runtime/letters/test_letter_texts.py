# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.runtime.letters.letter_texts import as_json, in_full, value_of, value_text
from statefun.sdk.primitives import StringType

SENT = StringType.serializer().serialize("Ada")


def letter(value: bytes, **facts: str) -> DeadLetter:
    """Return a letter with this value and these facts."""
    return DeadLetter(0, 1, b"k", value, [], {"type": StringType.typename, **facts})


@pytest.mark.parametrize(
    ("read", "new"),
    [(letter(SENT), SENT), (letter(b"Ada", encoded="yes"), b"Ada")],
)
def test_a_text_is_shown_and_changed_as_its_topic_or_its_sender_has_written_it(
    read: DeadLetter, new: bytes
) -> None:
    """A value that no deserializer has read has the bytes of its record."""
    assert value_text(read) == "Ada"
    assert value_of(read, b"Ada") == new


def test_facts_for_replays_are_only_in_json() -> None:
    """The number of a route, and whether the value is encoded, are not in the text."""
    read = letter(b"Ada", encoded="yes", route="5")

    assert not any("route" in line or "encoded" in line for line in in_full(read))
    assert (as_json(read)["route"], as_json(read)["encoded"]) == (5, "yes")


def test_the_event_time_is_shown_as_a_time() -> None:
    """Of a message that has one."""
    read = letter(SENT, **{"event-time": "1767225600000"})

    assert "  event time: 2026-01-01 00:00:00 UTC" in in_full(read)
    assert as_json(read)["event_time"] == "2026-01-01T00:00:00Z"
    assert not any("event time" in line for line in in_full(letter(SENT)))


def test_a_secret_value_is_not_shown() -> None:
    """All other parts of the letter are."""
    read = DeadLetter(0, 1, b"k", b"hunter2", [], {"secret": "yes"})

    lines = [*in_full(read)]
    assert "  value: (secret)" in lines
    assert "  key: k" in lines
    assert "hunter2" not in f"{lines} {as_json(read)}"
    assert as_json(read)["value"] is None
