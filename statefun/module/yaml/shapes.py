# SPDX-License-Identifier: Apache-2.0
"""Classes that declare the keys of mappings, and read mappings by these declarations.

A `Key` reads one value; a `Shape` is a set of keys, and reads a mapping as `Values`::

    PORT = Key("port", integer(1), "the port to listen on", required=True)
    values = Shape((PORT,)).read(node, problems)
    values[PORT]  # an int, also for the type checker
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, overload

import attrs

from statefun.module.yaml.nodes import BrokenNode, ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Invalid, Problems
from statefun.sdk.nearest_names import nearest_name

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")
NodeT = TypeVar("NodeT", bound=Node)

Reader = Callable[[Node, Problems], T]
"""A function that returns the value of a node, or reports the node's problems and raises `Invalid`."""
JsonSchema = Mapping[str, Any]
"""A JSON Schema of values; the schema's title is the name of the values' type in the documentation."""


@attrs.frozen(eq=False)
class Described(Generic[T_co]):
    """A reader together with the schema of its values."""

    read: Reader[T_co]
    schema: JsonSchema

    def __call__(self, node: Node, problems: Problems) -> T_co:
        """Read the value of a node with the reader."""
        return self.read(node, problems)


def described(schema: JsonSchema) -> Callable[[Reader[T]], Described[T]]:
    """Return a decorator that attaches ``schema``, the JSON Schema of the values, to a reader of values."""
    return lambda read: Described(read, schema)


def schema_of(read: Reader[Any]) -> JsonSchema:
    """Return the schema of a reader's values; if the reader has no schema, return an empty one."""
    return read.schema if isinstance(read, Described) else {}


@attrs.frozen(eq=False)
class Key(Generic[T_co]):
    """The declaration of one key of a mapping."""

    name: str
    read: Reader[T_co]
    doc: str
    """The meaning of the value, for error texts and the documentation: a noun phrase."""
    required: bool = False
    default: Any = None
    """The default for the documentation: a value as users would write it, or words in brackets."""
    example: Any = None
    """An example value for the documentation."""

    @property
    def schema(self) -> JsonSchema:
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
        """Return the value of a key.

        Raises:
            Invalid: if the value is invalid, or a required value is missing; both were reported before.
        """
        if key in self._failed:
            raise Invalid
        value: T = self._read[key]
        return value

    @overload
    def get(self, key: Key[T]) -> T | None: ...
    @overload
    def get(self, key: Key[T], default: D) -> T | D: ...
    def get(self, key: Key[T], default: D | None = None) -> T | D | None:
        """Return the value of a key, or ``default`` if the value is missing or invalid."""
        value: T | D | None = self._read.get(key, default)
        return value

    def __contains__(self, key: Key[Any]) -> bool:
        """Return whether a key has a valid value."""
        return key in self._read

    def attempted(self, key: Key[Any]) -> bool:
        """Return whether the file has a key, even if the key is misspelt or its value is invalid."""
        return key.name in self._attempted


@attrs.frozen
class Shape:
    """The declaration of a mapping: the keys that it may have."""

    keys: tuple[Key[Any], ...]

    @property
    def schema(self) -> JsonSchema:
        """The JSON Schema of mappings that have only the declared keys."""
        return {
            "title": "mapping",
            "type": "object",
            "properties": {key.name: key.schema for key in self.keys},
            "required": [key.name for key in self.keys if key.required],
            "additionalProperties": False,
        }

    @property
    def reader(self) -> Described[Values]:
        """The method `read` as a reader, together with the JSON Schema of the mappings that it reads."""
        return Described(self.read, self.schema)

    def read(self, node: Node, problems: Problems) -> Values:
        """Read the values of all keys; report problems, and leave keys with problems out of the result.

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
        """Report an unknown key; return the key that was probably meant, which must not count as missing."""
        nearest = did_you_mean(key, names)
        text = f"unknown key {key.quoted}; {nearest.hint}allowed keys: {', '.join(sorted(names))}"
        problems.report(key.location, key.path, text)
        return nearest.names


@attrs.frozen
class Variants:
    """The declaration of a mapping whose ``type`` decides which further keys it may have."""

    invalid: str
    """The error text for an unknown type, such as ``Invalid colour: {type}; valid values are [{types}]``."""
    shapes: Mapping[str, tuple[Key[Any], ...]]
    prefix: str = ""
    """A text with which a type may begin, such as the name of a Java package."""

    @property
    def schema(self) -> JsonSchema:
        """The JSON Schema of mappings that have a ``type`` and the keys of this type."""
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
        """The method `read` as a reader, together with the JSON Schema of the mappings that it reads.

        The result of reading is the ``type`` of a mapping, and the values of the mapping's other keys.
        """
        return Described(self.read, self.schema)

    def read(self, node: Node, problems: Problems) -> tuple[str, Values]:
        """Read a mapping; return its type, and the values of its other keys.

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
        variant = key.read(type_node, problems)
        shape = Shape((key, *self.shapes[variant]))
        foreign = others.keys() - {other.name for other in shape.keys}
        for entry in mapping.entries:
            if entry.key.text in foreign:
                text = f"{entry.key.quoted} is only used with type {self._takers(entry.key.text)}"
                problems.report(entry.key.location, entry.key.path, text)
        own = tuple(entry for entry in mapping.entries if entry.key.text not in foreign)
        return variant, shape.read(attrs.evolve(mapping, entries=own), problems)

    def _names(self, name: str) -> JsonSchema:
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
    """Return a node if it is of the expected class; otherwise report the problem.

    Raises:
        Invalid: if the node is of another class, is null, or has a problem that was reported before.
    """
    if isinstance(node, BrokenNode):
        raise Invalid
    is_null = isinstance(node, ScalarNode) and node.is_null
    if isinstance(node, kind) and not is_null:
        return node
    actual = {ListNode: "a list", MapNode: "a mapping"}.get(type(node), "a single value")
    text = f"expected {what}, but found {'nothing' if is_null else actual}"
    raise problems.report(node.location, node.path, text)


@attrs.frozen
class _Nearest:
    names: set[str]
    hint: str


def did_you_mean(scalar: ScalarNode, valid: Iterable[str]) -> _Nearest:
    """Return the valid name that is most similar to a scalar, and a hint; both are empty if none is similar.

    The source of the scalar, in which references are not replaced, is compared, so that the hint reveals
    nothing about a secret.
    """
    near = nearest_name(scalar.source, valid)
    if near is None:
        return _Nearest(set(), "")
    return _Nearest({near}, f"did you mean {near!r}? ")
