# SPDX-License-Identifier: Apache-2.0
"""Keys of addresses, and the typenames that are decoded once."""

from __future__ import annotations

from hypothesis import given
from strategies import addresses

from statefun.engine.address_keys import address_key, address_of
from statefun.sdk.address import Address
from statefun.sdk.bounded_map import MOST_NAMES


@given(addresses())
def test_a_key_stands_for_its_address(address: Address) -> None:
    """Encoding loses nothing."""
    assert address_of(address_key(address)) == address


def test_typenames_are_kept_unless_there_are_too_many() -> None:
    """Addresses share the text of their typename; any text may be the name of a function behind an endpoint."""
    first = address_of(b"Ada\0t/first").typename
    assert address_of(b"Bob\0t/first").typename is first

    for number in range(MOST_NAMES):
        address_of(b"Ada\0t/f%d" % number)

    assert address_of(b"Ada\0t/first").typename is not first
