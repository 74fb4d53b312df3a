# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.sdk.printable import json_content, printable


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("Ada", "Ada"),
        ("Ada\x1b[2J\n", r"Ada\x1b[2J\n"),
        ("größer", "größer"),
        ("\ud800", r"\ud800"),
    ],
)
def test_characters_that_a_terminal_obeys_are_escaped(text: str, printed: str) -> None:
    """All other characters stay."""
    assert printable(text) == printed


def test_a_text_may_be_cut_and_keep_characters() -> None:
    """The limit counts before the escapes."""
    assert printable("x" * 100, limit=8) == "xxxxx..."
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc"


def test_bytes_that_are_not_text_are_base64_in_json() -> None:
    """Text stays text, and None stays None."""
    assert json_content(b"Ada") == "Ada"
    assert json_content("Ada") == "Ada"
    assert json_content(None) is None
    assert json_content(b"\xff") == {"base64": "/w=="}
