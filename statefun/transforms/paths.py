# SPDX-License-Identifier: Apache-2.0
"""Paths to fields of nested objects.

See KIP-821 of Kafka: dots separate the names, and a name that contains dots is in backticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from statefun.transforms.data import TransformError

_TICK = "`"


class PathSyntax(Enum):
    """The syntax of the option that names a field."""

    V1 = "V1"
    """The option is the name of one field; dots belong to the name."""
    V2 = "V2"
    """The option is a path: names of fields, outermost first, separated by dots."""


def path_of(text: str, syntax: PathSyntax) -> tuple[str, ...]:
    r"""Split the path of a field into its names.

    Within backticks, a backtick that is followed by a dot must be escaped with a backslash.

    Raises:
        TransformError: if an opening backtick has no closing backtick.

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
    """Return the name before the closing backtick, the rest of the path, and whether no name follows."""
    name, place = "", 0
    while True:
        end = text.find(_TICK, place)
        escaped = end > 0 and text[end - 1] == "\\"
        is_last = end == len(text) - 1
        if end < 0 or (is_last and escaped):
            raise TransformError(
                "cannot split the path of the field: an opening backtick has no closing backtick"
            )
        if is_last:
            return name + text[:end], "", True
        if text[end + 1] == "." and not escaped:
            return name + text[:end], text[end + 2 :], False
        if text[end + 1] == ".":
            name, text, place = name + text[: end - 1] + _TICK, text[end + 1 :], 0
        else:
            place = end + 1
