# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun.engine.effects import PIECE_BYTES, EffectRows, Effects, row_size


class Text(str):
    """A text of a class that a serializer of users returns."""

    __slots__ = ()


def test_texts_of_other_classes_have_their_length() -> None:
    """Users' serializers may return subclasses of str and bytes."""
    assert row_size((Text("abc"),)) == row_size(("abc",)) == 3


def test_effects_are_taken_in_pieces_of_a_bounded_size() -> None:
    """The order stays, and nothing is taken twice."""
    rows, cell = EffectRows(), b"x" * (PIECE_BYTES // 2)
    for number in range(5):
        rows.append((number, cell))

    pieces = rows.take()

    assert [numbers for numbers, _ in pieces] == [[0, 1], [2, 3], [4]]
    assert (rows.take(), len(rows), rows.size) == ([], 0, 0)


def test_effects_count_messages_and_records() -> None:
    """Without any, they are false."""
    effects = Effects()
    assert (bool(effects), effects.size) == (False, 0)

    effects.egress["t/out"].append((b"abc",))
    assert (bool(effects), effects.size) == (True, 3)
    effects.messages.append((b"de",))
    assert (bool(effects), effects.size) == (True, 5)
