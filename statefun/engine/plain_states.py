# SPDX-License-Identifier: Apache-2.0
"""Reads and writes stored states that have nothing but values, in the wire format of ``AddressState``.

Almost all states have nothing else. Their bytes are read and written here, since Protobuf makes Python objects
for each of their parts, which takes several times as long.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from statefun.sdk.types import TypedValue

_ENTRY: Final = 0x0A
"""The tag of a value in an ``AddressState``."""
_NAME: Final = 0x0A
"""The tag of the name in a value, which comes first."""
_TYPENAME: Final = 0x12
_VALUE: Final = 0x1A
_MORE: Final = 0x80
"""The bit of a byte of a number that says that the number has a further byte."""
_BITS: Final = 7
"""How many bits of a number are in a byte."""
_BYTES: Final = tuple(bytes((number,)) for number in range(_MORE))
_make_value: Final = partial(tuple.__new__, TypedValue)


def read_values(stored: bytes, values: dict[str, TypedValue]) -> bool:
    """Add the values in a stored state to ``values``; return whether the state has nothing else.

    If the result is False, ``values`` may be incomplete, and Protobuf has to decode the state: it has other
    parts, is damaged, or has a name of 128 bytes or more.
    """
    position, end = 0, len(stored)
    try:
        while position < end:
            if stored[position] != _ENTRY:
                return False
            size, start = _number(stored, position + 1)
            name_end = start + 2 + stored[start + 1]
            head_end = name_end + 2 + stored[name_end + 1]
            is_known = (
                stored[start] == _NAME
                and stored[name_end] == _TYPENAME
                and stored[head_end] == _VALUE
                and stored[start + 1] < _MORE
                and stored[name_end + 1] < _MORE
            )
            length, value_start = _number(stored, head_end + 1)
            position = value_start + length
            if not is_known or position != start + size or position > end:
                return False
            name, typename = _head_parts(stored[start:head_end])
            values[name] = _make_value((typename, stored[value_start:position]))
    except (IndexError, UnicodeDecodeError):
        return False
    return True


def encoded_values(values: dict[str, TypedValue]) -> bytes:
    r"""Return the stored form of a state that has nothing but values.

    >>> encoded_values({"x": TypedValue("a/b", b"\1")})
    b'\n\x0b\n\x01x\x12\x03a/b\x1a\x01\x01'
    """
    parts: list[bytes] = []
    for name, (typename, value) in values.items():
        head = _head(name, typename)
        length = _encoded_number(len(value))
        parts += (
            b"\n",
            _encoded_number(len(head) + len(length) + len(value)),
            head,
            length,
            value,
        )
    return b"".join(parts)


@lru_cache
def _head(name: str, typename: str) -> bytes:
    """Return the bytes with which a stored value begins: all that come before the length of its content.

    The result is cached, because many values begin with the same bytes.
    """
    parts = [(_NAME, name.encode()), (_TYPENAME, typename.encode())]
    fields = (bytes((tag,)) + _encoded_number(len(text)) + text for tag, text in parts)
    return b"".join(fields) + bytes((_VALUE,))


@lru_cache
def _head_parts(head: bytes) -> tuple[str, str]:
    """Return name and typename of a stored value from its beginning; cached, as many values share it."""
    name_end = 2 + head[1]
    return head[2:name_end].decode(), head[name_end + 2 :].decode()


def _number(stored: bytes, position: int) -> tuple[int, int]:
    """Decode the number of variable length at a position; return it, and the position after it."""
    number = stored[position]
    if number < _MORE:
        return number, position + 1
    number -= _MORE
    shift = _BITS
    while True:
        position += 1
        byte = stored[position]
        if byte < _MORE:
            return number | byte << shift, position + 1
        number |= (byte - _MORE) << shift
        shift += _BITS


def _encoded_number(number: int) -> bytes:
    if number < _MORE:
        return _BYTES[number]
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number % _MORE + _MORE)
        number >>= _BITS
    encoded.append(number)
    return bytes(encoded)
