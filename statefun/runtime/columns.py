# SPDX-License-Identifier: Apache-2.0
"""Converts Arrow columns to lists of Python values, quickly."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_OBJECT_TYPES = frozenset({pa.binary(), pa.string()})
"""The Arrow types whose values NumPy converts to Python objects, and whose nulls it converts to None."""
_SAFE_TYPES = _OBJECT_TYPES | {pa.int32(), pa.int64(), pa.bool_()}
"""The Arrow types whose values NumPy converts without a change, if the column has no nulls."""


def values_of(column: pa.Array) -> list[Any]:
    """Convert an Arrow column to a list of Python values.

    Arrow's own ``to_pylist`` makes a scalar of each value first, which takes ten times as long. It
    is used only where NumPy would change values, such as numbers in a column with nulls.

    >>> values_of(pa.array([b"a", None])), values_of(pa.array([1, None])), values_of(pa.nulls(1))
    ([b'a', None], [1, None], [None])
    """
    if column.null_count == len(column):
        return [None] * len(column)
    is_exact = column.type in (_OBJECT_TYPES if column.null_count else _SAFE_TYPES)
    if not is_exact:
        return list(column.to_pylist())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values
