# SPDX-License-Identifier: Apache-2.0
"""Addresses as keys: bytes by which messages and state are grouped, sorted and stored."""

from __future__ import annotations

from functools import cache, partial

from statefun.sdk.address import Address

SEPARATOR = b"\0"
_make_address = partial(tuple.__new__, Address)


def address_key(address: Address) -> bytes:
    r"""Encode an address as grouping key.

    The id comes first: keys are sorted by comparing bytes, and addresses of one type would
    share a long prefix. Typenames hold no NUL, so the last one separates.

    >>> address_key(Address("com.example.fns", "greeter", "Ada"))
    b'Ada\x00com.example.fns/greeter'
    """
    return address.id.encode() + SEPARATOR + address.typename.encode()


def address_of(key: bytes) -> Address:
    r"""Decode a grouping key.

    >>> str(address_of(b"Ada\x00com.example.fns/greeter"))
    'com.example.fns/greeter/Ada'
    """
    id_, _, typename = key.rpartition(SEPARATOR)
    namespace, name, text = _typename_parts(typename)
    return _make_address((namespace, name, id_.decode(), text))


def typename_of(key: bytes) -> str:
    r"""Return the typename in a grouping key.

    >>> typename_of(b"Ada\x00com.example.fns/greeter")
    'com.example.fns/greeter'
    """
    return key.rpartition(SEPARATOR)[2].decode()


@cache
def _typename_parts(typename: bytes) -> tuple[str, str, str]:
    """Split a typename; cached, because few typenames serve millions of addresses."""
    text = typename.decode()
    namespace, _, name = text.rpartition("/")
    return namespace, name, text
