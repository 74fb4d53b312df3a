# SPDX-License-Identifier: Apache-2.0
"""Makes text from records and users' code safe to print on a terminal or in a log."""

from __future__ import annotations

import base64
from typing import Any

from statefun.sdk.shortening import shortened


def printable(text: str, limit: int | None = None, keep: str = "") -> str:
    r"""Escape characters that are not printable: control characters, line ends, lone surrogates.

    Keys and exceptions' texts may hold any character; a terminal would obey some of them, and a
    line of a log would become two.

    Args:
        text: any text.
        limit: the largest length before escaping; a longer text is cut, and ends with three dots.
        keep: characters that are not escaped.

    >>> print(printable("Ada\x1b[2J\nLovelace \ud800"))
    Ada\x1b[2J\nLovelace \ud800
    >>> printable("x" * 100, limit=8)
    'xxxxx...'
    """
    if limit is not None:
        text = shortened(text, limit)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


def without_surrogates(text: str) -> str:
    r"""Escape lone surrogates, which UTF-8 and so Protobuf cannot encode.

    >>> print(without_surrogates("Ada\udce9 \u03bb"))
    Ada\udce9 λ
    """
    return text.encode(errors="backslashreplace").decode()


def json_content(content: bytes | str | None) -> Any:
    """Convert a key or value of a record for JSON: UTF-8 to a string, other bytes to base64.

    >>> json_content(b"Ada"), json_content(bytes([255])), json_content(None)
    ('Ada', {'base64': '/w=='}, None)
    """
    if not isinstance(content, bytes):
        return content
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
