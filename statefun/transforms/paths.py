# SPDX-License-Identifier: Apache-2.0
"""Paths to fields in objects in objects.

From KIP-821 of Kafka: names are separated by dots, and a name with dots in it is put in backticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from statefun.transforms.data import TransformError

_TICK = "`"


class PathSyntax(Enum):
    """How a field is named."""

    V1 = "V1"
    """A name as it is."""
    V2 = "V2"
    """A path."""


def path_of(text: str, syntax: PathSyntax) -> tuple[str, ...]:
    r"""Return the names in a path.

    A backtick within backticks has a backslash before it where a dot follows.

    Raises:
        TransformError: if backticks are not closed.

    >>> path_of("user.`home.address`.city", PathSyntax.V2)
    ('user', 'home.address', 'city')
    """
    return (text,) if syntax is PathSyntax.V1 else tuple(_names(text))


def _names(text: str) -> Iterator[str]:
    rest = text
    while True:
        if rest.startswith(_TICK):
            name, rest, is_last = _quoted(rest[1:])
        else:
            name, dot, rest = rest.partition(".")
            is_last = not dot
        yield name
        if is_last:
            return


def _quoted(text: str) -> tuple[str, str, bool]:
    """Return a name up to its closing backtick, what follows, and whether nothing does."""
    name, place = "", 0
    while True:
        end = text.find(_TICK, place)
        escaped = end > 0 and text[end - 1] == "\\"
        is_last = end == len(text) - 1
        if end < 0 or (is_last and escaped):
            raise TransformError("has a backtick that is not closed")
        if is_last:
            return name + text[:end], "", True
        if text[end + 1] == "." and not escaped:
            return name + text[:end], text[end + 2 :], False
        if text[end + 1] == ".":
            name, text, place = name + text[: end - 1] + _TICK, text[end + 1 :], 0
        else:
            place = end + 1
