# SPDX-License-Identifier: Apache-2.0
"""Fields of records: repeated names, and the field whose value is the id of an address."""

from __future__ import annotations

from collections.abc import Sequence


def id_of(value: object) -> bytes | None:
    """Return a field's value as the id of an address; None if the value cannot be an id.

    >>> id_of("Ada"), id_of(7), id_of(True), id_of(None)
    (b'Ada', b'7', None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        return str(value).encode()
    except UnicodeEncodeError:
        return None


def no_id(field: str | None) -> str:
    """Return why a record without a usable field has no id."""
    return f"its field {field!r}, which is to be the id of the address, is no text or number"


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs for a second time; None if all names differ.

    >>> first_repeated(["a", "b", "a"])
    'a'
    """
    return next((name for number, name in enumerate(names) if name in names[:number]), None)
