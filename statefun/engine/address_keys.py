# SPDX-License-Identifier: Apache-2.0
"""Encodes addresses as keys: the bytes by which messages and states are grouped, sorted and stored."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

from statefun.sdk.address import Address
from statefun.sdk.bounded_map import MOST_NAMES

SEPARATOR: Final = b"\0"
_make_address: Final = partial(tuple.__new__, Address)


def address_key(address: Address) -> bytes:
    r"""Return the key of an address: its id, a NUL byte and its typename.

    The id comes first, because keys are sorted byte by byte, and the typename as a prefix would be the
    same for all addresses of a type. A typename contains no NUL, so the last NUL of a key ends the id.

    >>> address_key(Address("com.example.fns", "greeter", "Ada"))
    b'Ada\x00com.example.fns/greeter'
    """
    return address.id.encode() + SEPARATOR + address.typename.encode()


def address_of(key: bytes) -> Address:
    r"""Return the address that a key stands for.

    >>> str(address_of(b"Ada\x00com.example.fns/greeter"))
    'com.example.fns/greeter/Ada'
    """
    end = key.rfind(SEPARATOR)
    namespace, name, text = _typename_parts(key[end + 1 :])
    return _make_address((namespace, name, key[: max(end, 0)].decode(), text))


def typename_of(key: bytes) -> str:
    r"""Return the typename of the address that a key stands for.

    >>> typename_of(b"Ada\x00com.example.fns/greeter")
    'com.example.fns/greeter'
    """
    return key.rpartition(SEPARATOR)[2].decode()


@lru_cache(maxsize=MOST_NAMES)
def _typename_parts(typename: bytes) -> tuple[str, str, str]:
    """Return the namespace and the name in an encoded typename, and the whole typename as text.

    The result is cached, as many addresses share a typename.
    """
    text = typename.decode()
    namespace, _, name = text.rpartition("/")
    return namespace, name, text
