# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

from statefun.kinesis.room import Room


def test_what_is_about_to_come_needs_room() -> None:
    """Many requests at once would have many answers in memory; an empty room has space for any answer."""
    room = Room(1000)

    assert [room.try_add(2000), room.try_add(1), room.try_add(0)] == [True, False, False]
    room.add(-2000)
    assert [room.try_add(600), room.try_add(600), room.try_add(400)] == [True, False, True]


def test_many_readers_ask_less_often() -> None:
    """Few readers ask as often as Kinesis allows; all together ask at most a hundred times a second."""
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
