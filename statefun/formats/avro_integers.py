# SPDX-License-Identifier: Apache-2.0
"""Finds integers that are too long for Avro's type "int", which has 32 bits, in values that were decoded."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any

_Finder = Callable[[Any], bool]
"""Returns whether a value may have an integer that is too long."""
_SHORT = range(-(1 << 31), 1 << 31)
_WITHOUT_INTEGERS = ("null", "boolean", "long", "float", "double", "bytes", "string")
"""The primitive types whose values are no integers, or may be long ones."""


def finder_of(schema: Any) -> _Finder | None:
    """Return a function that finds integers that may be too long in values of a schema; None if no value has one.

    A union may have both "int" and "long", so the caller must validate each value that is found.

    Args:
        schema: the schema, as fastavro has parsed it.

    >>> find = finder_of({"type": "array", "items": "int"})
    >>> find([1, 2**31 - 1]), find([1, 2**31])
    (False, True)
    >>> finder_of({"type": "array", "items": "long"}) is None
    True
    """
    return _Schema().finder(schema)


class _Schema:
    def __init__(self) -> None:
        self._named: dict[str, _Finder | None] = dict.fromkeys(_WITHOUT_INTEGERS)

    def finder(self, schema: Any) -> _Finder | None:
        if isinstance(schema, list):
            return _in_any([self.finder(each) for each in schema])
        if isinstance(schema, dict):
            return self._of_kind(schema["type"], schema)
        return _is_long if schema == "int" else self._named.get(schema, _may_be)

    def _of_kind(self, kind: Any, schema: Mapping[str, Any]) -> _Finder | None:
        match kind:
            case "array":
                return _in_list(self.finder(schema["items"]))
            case "map":
                return _in_map(self.finder(schema["values"]))
            case "record" | "error":
                return self._of_record(schema)
            case "enum" | "fixed":
                self._named[schema["name"]] = None
                return None
            case _:
                return self.finder(kind)

    def _of_record(self, schema: Mapping[str, Any]) -> _Finder | None:
        """Return the finder of a record, whose fields may have the same record."""
        name = schema["name"]
        self._named[name] = lambda value: (find := self._named[name]) is not None and find(value)
        finders = [(each["name"], self.finder(each["type"])) for each in schema["fields"]]
        self._named[name] = _in_record([(each, find) for each, find in finders if find])
        return self._named[name]


def _may_be(_: Any) -> bool:
    """Find a long integer in each value, for types that are not known."""
    return True


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and value not in _SHORT


def _in_any(finders: list[_Finder | None]) -> _Finder | None:
    found = [each for each in finders if each]
    if len(found) == 1:
        return found[0]
    return (lambda value: any(find(value) for find in found)) if found else None


def _in_list(find: _Finder | None) -> _Finder | None:
    if find is _is_long:
        return _is_any_long
    return find and (lambda value: isinstance(value, list) and any(map(find, value)))


def _is_any_long(values: Any) -> bool:
    """Return whether a list has a long integer: an array of integers refuses them, and is much faster than a loop."""
    if not isinstance(values, list):
        return False
    try:
        array("i", values)
    except (OverflowError, TypeError):  # the latter for values of a union or of a logical type
        return any(map(_is_long, values))
    return False


def _in_map(find: _Finder | None) -> _Finder | None:
    return find and (lambda value: isinstance(value, dict) and any(map(find, value.values())))


def _in_record(finders: list[tuple[str, _Finder]]) -> _Finder | None:
    def find_in(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        return any(name in value and find(value[name]) for name, find in finders)

    return find_in if finders else None
