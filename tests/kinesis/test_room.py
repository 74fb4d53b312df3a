# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

from statefun.kinesis.room import Room


def test_what_is_about_to_come_needs_room() -> None:
    """Many readers that ask at once would hold many answers; an empty room takes any answer."""
    room = Room(1000)

    assert [room.has_taken(2000), room.has_taken(1), room.has_taken(0)] == [True, False, False]
    room.take(-2000)
    assert [room.has_taken(600), room.has_taken(600), room.has_taken(400)] == [True, False, True]


def test_many_readers_ask_less_often() -> None:
    """As often as Kinesis allows while they are few; no more than a hundred times a second in all."""
    room = Room(1000)
    with ExitStack() as readers:
        for _ in range(20):
            readers.enter_context(room.reader())
        few = room.spacing
        for _ in range(480):
            readers.enter_context(room.reader())
        many = room.spacing

    assert (few, many) == (timedelta(milliseconds=200), timedelta(seconds=5))
    assert room.spacing == few
