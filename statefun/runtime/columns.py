# SPDX-License-Identifier: Apache-2.0
"""Converts Arrow columns to Python's values, quickly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_KEPT = frozenset({pa.binary(), pa.string()})
"""The types whose values NumPy keeps as Python's objects, nulls included."""
_KEPT_WITHOUT_NULLS = _KEPT | {pa.int32(), pa.int64(), pa.bool_()}


def values_of(column: pa.Array) -> list[Any]:
    """Convert a column.

    Arrow's own ``to_pylist`` makes a scalar of each value first, which takes ten times as long;
    what NumPy would convert to something else still goes that way, such as numbers with nulls.

    >>> values_of(pa.array([b"a", None])), values_of(pa.array([1, None])), values_of(pa.nulls(1))
    ([b'a', None], [1, None], [None])
    """
    if column.null_count == len(column):
        return [None] * len(column)
    is_kept = column.type in (_KEPT if column.null_count else _KEPT_WITHOUT_NULLS)
    if not is_kept:
        return list(column.to_pylist())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values
