# SPDX-License-Identifier: Apache-2.0
"""Checks the fields of records: finds repeated names, and takes the id of the target from a field."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal


def id_of_field(value: object) -> bytes | None:
    """Return the value of a field as the id of an address; None if the value cannot be an id.

    >>> id_of_field("Ada"), id_of_field(7), id_of_field(Decimal("7.00")), id_of_field(True), id_of_field(None)
    (b'Ada', b'7', b'7.00', None, None)
    """
    if isinstance(value, Decimal):
        return format(value, "f").encode()  # str() may use an exponent
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        return str(value).encode()
    except UnicodeEncodeError:
        return None


def id_problem(field: str | None) -> str:
    """Return the error text for a record whose id field is missing or cannot be an id."""
    return f"the field {field!r} must be a text or a number, as it is the id of the target"


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs for a second time; None if all names differ.

    >>> first_repeated(["a", "b", "a"])
    'a'
    """
    return next((name for number, name in enumerate(names) if name in names[:number]), None)
