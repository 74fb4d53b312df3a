# SPDX-License-Identifier: Apache-2.0
"""Declarations of the keys that a mapping takes, which also read it.

A `Key` reads one value; a `Shape` is a set of keys; its result are `Values`::

    PORT = Key("port", integer(1), "the port to listen on", required=True)
    values = Shape((PORT,)).read(node, problems)
    values[PORT]  # an int, for the type checker as well
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

import attrs

from statefun.module.yaml.nodes import BrokenNode, ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")
NodeT = TypeVar("NodeT", bound=Node)

Reader = Callable[[Node, Problems], T]
"""Reads a node's value, or reports its problems and raises `Invalid`."""
Schema = Mapping[str, Any]
"""A JSON Schema of values; documents use its title as the type's name."""


@attrs.frozen(eq=False)
class Described(Generic[T_co]):
    """A reader with the schema of its values."""

    read: Reader[T_co]
    schema: Schema

    def __call__(self, node: Node, problems: Problems) -> T_co:
        """Read a node's value."""
        return self.read(node, problems)


def described(schema: Schema) -> Callable[[Reader[T]], Described[T]]:
    """Decorate a reader with the schema of its values."""
    return lambda read: Described(read, schema)


def schema_of(read: Reader[Any]) -> Schema:
    """Return the schema of a reader's values; an empty one if the reader has none."""
    return read.schema if isinstance(read, Described) else {}


@attrs.frozen(eq=False)
class Key(Generic[T_co]):
    """One key of a mapping."""

    name: str
    read: Reader[T_co]
    doc: str
    """The meaning of the value, for messages and documents: a noun phrase."""
    required: bool = False
    default: Any = None
    """The default value as users would write it, or words in brackets; for documents."""
    example: Any = None
    """An example value, for documents."""

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the value."""
        notes: dict[str, Any] = {"description": self.doc}
        if isinstance(self.default, str) and self.default.startswith("("):
            notes["$comment"] = self.default
        elif self.default is not None:
            notes["default"] = self.default
        if self.example is not None:
            notes["examples"] = [self.example]
        return {**schema_of(self.read), **notes}


class Values:
    """The values that a `Shape` has read from a mapping."""

    def __init__(
        self, read: Mapping[Key[Any], Any], failed: frozenset[Key[Any]], attempted: frozenset[str]
    ) -> None:
        self._read = read
        self._failed = failed
        self._attempted = attempted

    def __getitem__(self, key: Key[T]) -> T:
        """Return a value; raise `Invalid` if it is missing or invalid, which has been reported."""
        if key in self._failed:
            raise Invalid
        value: T = self._read[key]
        return value

    @overload
    def get(self, key: Key[T]) -> T | None: ...
    @overload
    def get(self, key: Key[T], default: D) -> T | D: ...
    def get(self, key: Key[T], default: D | None = None) -> T | D | None:
        """A value, or the default if it is missing or invalid."""
        value: T | D | None = self._read.get(key, default)
        return value

    def __contains__(self, key: Key[Any]) -> bool:
        """Whether there is a value, and a valid one."""
        return key in self._read

    def attempted(self, key: Key[Any]) -> bool:
        """Whether the user wrote the key at all, be it misspelt or with an invalid value."""
        return key.name in self._attempted


@attrs.frozen
class Shape:
    """The keys that a mapping takes."""

    keys: tuple[Key[Any], ...]

    @property
    def schema(self) -> Schema:
        """What such a mapping may be."""
        return {
            "title": "mapping",
            "type": "object",
            "properties": {key.name: key.schema for key in self.keys},
            "required": [key.name for key in self.keys if key.required],
            "additionalProperties": False,
        }

    @property
    def reader(self) -> Described[Values]:
        """What reads such a mapping."""
        return Described(self.read, self.schema)

    def read(self, node: Node, problems: Problems) -> Values:
        """Read all keys; keys with problems are left out of the result.

        Raises:
            Invalid: if ``node`` is not a mapping.
        """
        names = [key.name for key in self.keys]
        mapping = expect(node, MapNode, f"a mapping with the keys {', '.join(names)}", problems)
        attempted = {entry.key.text for entry in mapping.entries}
        for entry in mapping.entries:
            if entry.key.text not in names:
                attempted |= self._report_unknown(entry.key, names, problems)
        read: dict[Key[Any], Any] = {}
        for key in self.keys:
            value = mapping.get(key.name)
            if value is not None:
                try:
                    read[key] = key.read(value, problems)
                except Invalid:
                    continue
            elif key.required and key.name not in attempted:
                text = f"missing required key {key.name!r}: {key.doc}"
                problems.report(mapping.location, mapping.path, text)
        failed = {
            key for key in self.keys if key not in read and (key.required or key.name in attempted)
        }
        return Values(read, frozenset(failed), frozenset(attempted))

    def _report_unknown(self, key: ScalarNode, names: list[str], problems: Problems) -> set[str]:
        """Report a key; return the probably meant key, which is then not reported as missing."""
        nearest = did_you_mean(key, names)
        text = f"unknown key {key.quoted}; {nearest.hint}allowed keys: {', '.join(sorted(names))}"
        problems.report(key.location, key.path, text)
        return nearest.names


@attrs.frozen
class Variants:
    """A mapping whose ``type`` decides which further keys it takes."""

    invalid: str
    """Message for other types, such as ``Invalid colour: {type}; valid values are [{types}]``."""
    shapes: Mapping[str, tuple[Key[Any], ...]]
    prefix: str = ""
    """What types may begin with, which changes nothing."""

    @property
    def schema(self) -> Schema:
        """What such a mapping may be."""
        shapes = {name: Shape(keys).schema for name, keys in self.shapes.items()}
        return {
            "title": "mapping",
            "oneOf": [
                {
                    **shape,
                    "properties": {"type": self._names(name), **shape["properties"]},
                    "required": ["type", *shape["required"]],
                }
                for name, shape in shapes.items()
            ],
        }

    @property
    def reader(self) -> Described[tuple[str, Values]]:
        """What reads such a mapping."""
        return Described(self.read, self.schema)

    def read(self, node: Node, problems: Problems) -> tuple[str, Values]:
        """Return the type, and the other values.

        Raises:
            Invalid: if ``node`` is not a mapping, or its type is missing or invalid.
        """
        mapping = expect(node, MapNode, "a mapping with the key type", problems)
        key = Key("type", self._type, f"one of {', '.join(self.shapes)}", required=True)
        others = {other.name: other for keys in self.shapes.values() for other in keys}
        type_node = mapping.get(key.name)
        if type_node is None:
            optional = (attrs.evolve(other, required=False) for other in others.values())
            Shape((key, *optional)).read(mapping, problems)
            raise Invalid
        chosen = key.read(type_node, problems)
        shape = Shape((key, *self.shapes[chosen]))
        foreign = others.keys() - {other.name for other in shape.keys}
        for entry in mapping.entries:
            if entry.key.text in foreign:
                text = f"{entry.key.quoted} is only used with type {self._takers(entry.key.text)}"
                problems.report(entry.key.location, entry.key.path, text)
        own = tuple(entry for entry in mapping.entries if entry.key.text not in foreign)
        return chosen, shape.read(attrs.evolve(mapping, entries=own), problems)

    def _names(self, name: str) -> Schema:
        return {"enum": [name, self.prefix + name]} if self.prefix else {"const": name}

    def _takers(self, name: str) -> str:
        takers = [kind for kind, keys in self.shapes.items() if name in (key.name for key in keys)]
        return " or ".join(takers)

    def _type(self, node: Node, problems: Problems) -> str:
        scalar = expect(node, ScalarNode, "a type", problems)
        name = scalar.text.removeprefix(self.prefix)
        if name not in self.shapes:
            text = self.invalid.format(type=scalar.source, types=", ".join(self.shapes))
            raise problems.report(scalar.location, scalar.path, text)
        return name


def expect(node: Node, kind: type[NodeT], what: str, problems: Problems) -> NodeT:
    """The node itself, if it is of the expected kind and not null.

    Raises:
        Invalid: otherwise.
    """
    if isinstance(node, BrokenNode):
        raise Invalid
    is_null = isinstance(node, ScalarNode) and node.is_null
    if isinstance(node, kind) and not is_null:
        return node
    found = {ListNode: "a list", MapNode: "a mapping"}.get(type(node), "a single value")
    text = f"expected {what}, but found {'nothing' if is_null else found}"
    raise problems.report(node.location, node.path, text)


@attrs.frozen
class _Nearest:
    names: set[str]
    hint: str


def did_you_mean(written: ScalarNode, valid: Iterable[str]) -> _Nearest:
    """Return the valid name that is most similar to the written one, if any is close.

    The comparison is with the text in the file, so that a hint tells nothing of a secret.
    """
    by_lower_case = {name.lower(): name for name in valid}
    near = difflib.get_close_matches(written.source.lower(), by_lower_case, n=1)
    names = {by_lower_case[name] for name in near}
    return _Nearest(names, "".join(f"did you mean {name!r}? " for name in names))
