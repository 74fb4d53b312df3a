# SPDX-License-Identifier: Apache-2.0
"""The form of the keys and states of ``applyInPandasWithState`` in a state store, and the partition of a key.

Based on ``UnsafeRow.java``, ``UnsafeRowDataEncoder`` (``RocksDBStateEncoder.scala``), ``StateManagerImplV2``
(``FlatMapGroupsWithStateExecHelper.scala``), ``HashPartitioning`` (``partitioning.scala``) and
``Murmur3_x86_32.java`` of Spark 4.2.0. A key is a row of one binary column, and a state a row of one column,
which is again a row of one binary column. Each begins with a byte for the version of the encoding. A row has
eight bytes that say which columns are null, eight bytes with the size and the place of the column, and the
column itself, padded with zeros to a multiple of eight bytes.
"""

from __future__ import annotations

import struct

_VERSION = b"\0"
_HEAD = struct.Struct("<qII")
"""Of a row: bits for null columns, and the size and place of the only column."""
_SEED = 42
_WORD = 0xFFFFFFFF


def key_row(key: bytes) -> bytes:
    """Return the key of a state store for a grouping key.

    >>> grouping_key(key_row(b"Ada"))
    b'Ada'
    """
    return _VERSION + _row(key)


def grouping_key(row: bytes) -> bytes:
    """Return the grouping key in a key of a state store.

    Raises:
        ValueError: if the row has another form.
    """
    return _column(row[1:], row, row[:1] == _VERSION)


def state_of(row: bytes) -> bytes:
    """Return the state in a value of a state store.

    Raises:
        ValueError: if the row has another form.
    """
    return _column(_column(row[1:], row, row[:1] == _VERSION), row, True)


def state_row(state: bytes) -> bytes:
    """Return the value of a state store for a state.

    >>> state_of(state_row(b"visits"))
    b'visits'
    """
    row = _row(state)
    return _VERSION + _row(row)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the number of the partition that has the state of a grouping key.

    >>> partition_of(b"Ada", 1)
    0
    """
    return _hash(key) % partitions


def _row(column: bytes) -> bytes:
    """Return a row of one binary column."""
    return _HEAD.pack(0, len(column), _HEAD.size) + column + bytes(-len(column) % 8)


def _column(content: bytes, row: bytes, is_known: bool) -> bytes:  # noqa: FBT001 - has one caller each
    """Return the only column of a row, which is binary."""
    if not is_known or len(content) < _HEAD.size or len(content) % 8:
        raise _unlike(row)
    nulls, size, place = _HEAD.unpack_from(content)
    end = place + size
    if nulls or place != _HEAD.size or end + -end % 8 != len(content):
        raise _unlike(row)
    return content[place:end]


def _unlike(row: bytes) -> ValueError:
    return ValueError(f"a row has another form than that of Spark 4.2 ({row[:40]!r})")


def _hash(content: bytes) -> int:
    """Return Spark's hash of bytes, which differs from Murmur3 in its treatment of the last bytes."""
    whole = len(content) // 4
    value = _SEED
    for word in struct.unpack_from(f"<{whole}I", content):
        value = _mixed(value, word)
    for byte in content[whole * 4 :]:
        value = _mixed(value, (byte - 256 if byte > 127 else byte) & _WORD)  # noqa: PLR2004 - a signed byte
    value ^= len(content)
    value = (value ^ value >> 16) * 0x85EBCA6B & _WORD
    value = (value ^ value >> 13) * 0xC2B2AE35 & _WORD
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _mixed(value: int, word: int) -> int:
    word = word * 0xCC9E2D51 & _WORD
    word = (word << 15 | word >> 17) * 0x1B873593 & _WORD
    value ^= word
    value = (value << 13 | value >> 19) & _WORD
    return (value * 5 + 0xE6546B64) & _WORD
