# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, MapType, StructType
from strategies import addresses, ids

from statefun.engine.address_keys import address_key, address_of
from statefun.engine.record_keys import rejection
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.sdk.address import Address


@given(address=addresses())
@example(address=Address("a/b", "c", "x/y"))
@example(address=Address("ns", "name", "\0"))
@example(address=Address("ns", "name", "\0ns/name"))
@example(address=Address("ns", "name", "Ada\0\0"))
def test_an_address_can_be_read_from_its_key(address: Address) -> None:
    """Any id, also with NUL or slashes, comes back with its namespace and name."""
    key = address_key(address)

    assert address_of(key) == address
    assert address_of(key).typename == address.typename


@given(one=addresses(), other=addresses(), id_=ids())
def test_different_addresses_have_different_keys(one: Address, other: Address, id_: str) -> None:
    """Only messages to the same address have the same key."""
    same_id = Address(one.namespace, one.name, id_), Address(other.namespace, other.name, id_)

    assert (address_key(one) == address_key(other)) == (one == other)
    assert (address_key(same_id[0]) == address_key(same_id[1])) == (same_id[0] == same_id[1])


@given(address=addresses(), tail=st.text("\0/nsAda", max_size=6))
def test_keys_with_separators_in_ids_do_not_collide(address: Address, tail: str) -> None:
    """An id that imitates a key's own form is still another address."""
    longer = Address(address.namespace, address.name, address.id + tail)

    assert (address_key(longer) == address_key(address)) == (tail == "")


def test_keys_begin_with_the_id() -> None:
    """Keys of one type differ early, so comparisons are short."""
    key = address_key(Address("com.example.fns", "greeter", "Ada"))

    assert key == b"Ada\0com.example.fns/greeter"


def test_rows_have_the_columns_of_the_dispatcher() -> None:
    """Names, order and types of the columns are as agreed between sources and dispatcher."""
    assert ROW_SCHEMA.simpleString() == (
        "struct<target:binary,offset:bigint,caller:binary,typename:string,value:binary,"
        "topic:string,partition:int,timestamp:bigint,key:binary,"
        "headers:string,trace:string,route:bigint,flags:int,event_time:bigint>"
    )


def test_rows_have_no_nested_columns() -> None:
    """Spark measures its Arrow batches after each row, and nested columns from the start.

    ``ArrowWriter.sizeInBytes`` sets the value count of every vector; for a list that takes time
    which grows with the rows so far.
    """
    nested = (ArrayType, MapType, StructType)

    assert not [field.name for field in ROW_SCHEMA if isinstance(field.dataType, nested)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("null-key", "the record has no key; the key becomes the id of the address"),
        ("empty-key", "the record's key is empty; the key becomes the id of the address"),
        ("undecodable-key", "the record's key is not valid UTF-8"),
        ("null-value", "the record has no value (a tombstone)"),
        ("no-target", "the record was to be replayed, and its headers statefun-target-type and"),
    ],
)
def test_every_reason_for_a_rejection_has_a_text(name: str, expected: str) -> None:
    """No reason for a rejection lacks its text."""
    assert rejection(name).startswith(expected)
