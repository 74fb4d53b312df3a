# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies that tests share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from statefun.sdk.address import Address, TypeName, is_reserved
from statefun.sdk.primitives import BoolType, DoubleType, FloatType, IntType, LongType, StringType
from statefun.sdk.types import SimpleType, Type, TypedValue

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

JSON: SimpleType[Any] = SimpleType(
    "test.strategies/json", lambda value: json.dumps(value).encode(), json.loads
)
"""A type of values that change in place; it is in no registry."""

_PRIMITIVES: Mapping[Type[Any], st.SearchStrategy[Any]] = {
    BoolType: st.booleans(),
    IntType: st.integers(INT_MIN, INT_MAX) | st.sampled_from([INT_MIN, -1, 0, INT_MAX]),
    LongType: st.integers(LONG_MIN, LONG_MAX) | st.sampled_from([LONG_MIN, -1, 0, LONG_MAX]),
    FloatType: st.floats(width=32),
    DoubleType: st.floats(),
    StringType: st.text(st.characters(exclude_categories=["Cs"])),
}

PRIMITIVE_TYPES = list(_PRIMITIVES)
"""All primitive types."""


def unicode_texts(min_size: int = 0) -> st.SearchStrategy[str]:
    """Any text that can be encoded: no lone surrogates."""
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=min_size)


def ids() -> st.SearchStrategy[str]:
    """Ids of addresses: any text but the empty one."""
    return unicode_texts(min_size=1)


def type_names() -> st.SearchStrategy[TypeName]:
    """Names of functions, egresses and value types; namespaces may hold slashes."""
    word = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
    name = word.filter(lambda text: "/" not in text)
    namespace = word.filter(lambda text: not is_reserved(text))
    return st.builds(TypeName, namespace=namespace, name=name)


def addresses() -> st.SearchStrategy[Address]:
    """Addresses of function instances."""
    return st.builds(lambda name, id_: Address(name.namespace, name.name, id_), type_names(), ids())


def values_of(type_: Type[Any]) -> st.SearchStrategy[Any]:
    """Values of one of the `PRIMITIVE_TYPES`, or of `JSON`."""
    if type_ is JSON:
        return st.dictionaries(unicode_texts(), st.integers() | unicode_texts())
    return _PRIMITIVES[type_]


def types_and_values() -> st.SearchStrategy[tuple[Type[Any], Any]]:
    """A primitive type, and one of its values."""
    return st.sampled_from(PRIMITIVE_TYPES).flatmap(
        lambda type_: st.tuples(st.just(type_), values_of(type_))
    )


def typed_values() -> st.SearchStrategy[TypedValue]:
    """Encoded values of all primitive types."""
    return types_and_values().map(
        lambda pair: TypedValue(pair[0].typename, pair[0].serializer().serialize(pair[1]))
    )
