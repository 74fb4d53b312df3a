# SPDX-License-Identifier: Apache-2.0
"""Reads the schema of a Parquet egress from a module file: the name and type of each column."""

from __future__ import annotations

import re
from collections import Counter

import pyarrow as pa

from statefun.components import (
    Key,
    ListNode,
    MapNode,
    Node,
    Problems,
    ScalarNode,
    described,
    mapping,
    text,
)
from statefun.files.rows import SIMPLE_TYPES, ParquetColumns

_DECIMAL = re.compile(r"decimal\(([1-9][0-9]?), *([0-9]{1,2})\)")
_MOST_DIGITS = 38
_DEEPEST = 30
"""How deep column types may be nested; readers of Parquet have such a limit."""
_NAMES = ", ".join([*SIMPLE_TYPES, "decimal(10,2)"])
_TYPE = {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]}


@described(
    {
        "title": "`column: type`",
        "type": "object",
        "additionalProperties": _TYPE,
        "minProperties": 1,
    }
)
def _columns(node: Node, problems: Problems) -> ParquetColumns:
    return ParquetColumns(pa.schema(_fields(node, problems, 0)))


SCHEMA = Key(
    "schema",
    _columns,
    "the columns of Parquet files: the type of each, by its name. A type is one of "
    f"{_NAMES}; `[type]` is a list, and a mapping an object",
    default="(none; format parquet needs one)",
    example={"name": "string", "visits": "bigint", "tags": ["string"], "home": {"city": "string"}},
)


def _type(node: Node, problems: Problems, depth: int) -> pa.DataType:
    if depth > _DEEPEST:
        sentence = f"must not be nested more than {_DEEPEST} deep"
        raise problems.report(node.location, node.path, sentence)
    if isinstance(node, MapNode):
        return pa.struct(_fields(node, problems, depth))
    if isinstance(node, ListNode):
        if len(node.items) != 1:
            sentence = "a list must have exactly one type, that of its items, such as [string]"
            raise problems.report(node.location, node.path, sentence)
        return pa.list_(_type(node.items[0], problems, depth + 1))
    name = text(node, problems)  # refuses a node that is no scalar
    if name in SIMPLE_TYPES:
        return SIMPLE_TYPES[name][0]
    numbers = _DECIMAL.fullmatch(name)
    if numbers and int(numbers[2]) <= int(numbers[1]) <= _MOST_DIGITS:
        return pa.decimal128(int(numbers[1]), int(numbers[2]))
    source = node.source if isinstance(node, ScalarNode) else "?"
    sentence = f"Invalid type: {source}; valid types are [{_NAMES}], lists and mappings"
    raise problems.report(node.location, node.path, sentence)


def _fields(node: Node, problems: Problems, depth: int) -> list[pa.Field]:
    entries = mapping(node, problems).entries
    if not entries:
        raise problems.report(node.location, node.path, "must have at least one column")
    counts = Counter(entry.key.text.lower() for entry in entries)
    for entry in entries:
        if not entry.key.text or counts[entry.key.text.lower()] > 1:
            sentence = "a column must have a name of its own; upper and lower case count as equal"
            raise problems.report(entry.key.location, entry.key.path, sentence)
    return [pa.field(entry.key.text, _type(entry.value, problems, depth + 1)) for entry in entries]
