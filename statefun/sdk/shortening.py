# SPDX-License-Identifier: Apache-2.0
"""Shortens long texts for error texts and logs."""

from __future__ import annotations

_MARK = "..."


def shortened(text: str, limit: int) -> str:
    """Return a text; of a text longer than ``limit``, return the beginning and three dots.

    >>> shortened("Ada Lovelace", 12), shortened("Ada Lovelace", 8)
    ('Ada Lovelace', 'Ada L...')
    """
    return text if len(text) <= limit else text[: limit - len(_MARK)] + _MARK


def without_middle(text: str, limit: int) -> str:
    """Return a text; in a text longer than ``limit``, replace the middle by a note that counts its characters.

    >>> without_middle("Augusta Ada King, Countess of Lovelace", 14)
    'Augusta ... (24 characters left out) ... ovelace'
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... ({len(text) - 2 * half:,} characters left out) ... {text[-half:]}"
