# SPDX-License-Identifier: Apache-2.0
"""Readers of values that components of several kinds have."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from statefun.module.yaml.dates import parse_date
from statefun.module.yaml.durations import parse_duration
from statefun.module.yaml.nodes import BrokenNode, ListNode, MapNode, Node, ScalarNode
from statefun.module.yaml.problems import Problems, read_all
from statefun.module.yaml.shapes import Described, JsonSchema, Reader, described, expect, schema_of
from statefun.sdk.address import RESERVED, TypeName, is_reserved
from statefun.sdk.errors import DefinitionError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_TARGET = re.compile(r"[^/*,\s\0]+/[^/*,\s\0]+")
_FUNCTIONS = re.compile(r"[^*\s\0]+/(\*|[^/*\s\0]+)")


_VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""The schema of a reference, ``${NAME}`` or ``${file:path}``, which any value may contain."""


def scalar_schema(title: str, **restrictions: Any) -> JsonSchema:
    """Return the schema of a single value; a reference such as ``${NAME}`` is allowed instead."""
    return {"title": title, "anyOf": [restrictions, _VARIABLE]}


def anything(node: Node, problems: Problems) -> Node:
    """Return the node itself, for a caller that reads the node later."""
    del problems
    return node


def mapping(node: Node, problems: Problems) -> MapNode:
    """Read a mapping; the caller checks its keys."""
    return expect(node, MapNode, "a mapping", problems)


@described({"title": "text", "type": ["string", "number", "boolean"]})
def text(node: Node, problems: Problems) -> str:
    """Read a string that is not empty; a number or boolean is read as its text in the file."""
    scalar = expect(node, ScalarNode, "a string", problems)
    if not scalar.text.strip():
        raise problems.report(scalar.location, scalar.path, "must not be empty")
    return scalar.text


@described(text.schema)
def file_content(node: Node, problems: Problems) -> bytes:
    """Read the content of a file, whose path is relative to the folder of the module file."""
    path = text(node, problems)
    try:
        return (Path(node.location.file).parent / Path(path).expanduser()).read_bytes()
    except OSError as error:
        sentence = f"cannot be read: {error.strerror}"
    except (RuntimeError, ValueError):  # an unknown user after ~, or a NUL character
        sentence = "is not the path of a file"
    raise problems.report(node.location, node.path, sentence)


def integer(minimum: int, maximum: int = 2**31 - 1) -> Reader[int]:
    """Return a reader of a whole number within bounds."""

    @described(scalar_schema("whole number", type="integer", minimum=minimum, maximum=maximum))
    def read(node: Node, problems: Problems) -> int:
        scalar = expect(node, ScalarNode, "a whole number", problems)
        if not _INTEGER.fullmatch(scalar.text) or not minimum <= int(scalar.text) <= maximum:
            sentence = f"{scalar.quoted} is not a whole number from {minimum} to {maximum}"
            raise problems.report(scalar.location, scalar.path, sentence)
        return int(scalar.text)

    return read


def choice(what: str, options: Mapping[str, T]) -> Reader[T]:
    """Return a reader of one of several words, in upper or lower case.

    Args:
        what: the name of the value in error texts.
        options: the results of the reader, by word.
    """
    by_lower_case = {option.lower(): value for option, value in options.items()}

    @described(scalar_schema(" or ".join(f"`{option}`" for option in options), enum=[*options]))
    def read(node: Node, problems: Problems) -> T:
        scalar = expect(node, ScalarNode, f"one of {', '.join(options)}", problems)
        if scalar.text.lower() not in by_lower_case:
            sentence = f"Invalid {what}: {scalar.source}; valid values are [{', '.join(options)}]"
            raise problems.report(scalar.location, scalar.path, sentence)
        return by_lower_case[scalar.text.lower()]

    return read


def member(what: str, kind: type[E]) -> Reader[E]:
    """Return a reader of a value of an enumeration; ``what`` is the value's name in error texts."""
    return choice(what, {str(each.value): each for each in kind})


def flag(what: str) -> Reader[bool]:
    """Return a reader of true or false; ``what`` is the value's name in error texts."""
    read = choice(what, {"true": True, "false": False})
    return Described(read, scalar_schema("`true` or `false`", type="boolean"))


def parsed(parse: Callable[[str], T], what: str, schema: JsonSchema) -> Described[T]:
    """Return a reader of a single value, which parses the value's text.

    Args:
        parse: returns the value of a text, or raises a ValueError whose text continues a sentence
            that begins with the quoted value.
        what: the name of the value in error texts.
        schema: the schema of the value.
    """

    @described(schema)
    def read(node: Node, problems: Problems) -> T:
        scalar = expect(node, ScalarNode, what, problems)
        try:
            return parse(scalar.text)
        except ValueError as error:
            sentence = f"{scalar.quoted} {error}"
            # Not chained: a traceback would show the text, which may be a secret.
            raise problems.report(scalar.location, scalar.path, sentence) from None

    return read


def _typename(string: str) -> TypeName:
    if is_reserved(string.strip()):
        raise ValueError(RESERVED)
    try:
        return TypeName.parse(string)
    except DefinitionError:
        raise ValueError(
            "is not of the form <namespace>/<name>, such as 'com.example.fns/greeter'"
        ) from None


def _regular_expression(string: str) -> str:
    try:
        re.compile(string)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if re.search(r"\(\?P|\\[1-9]", string):
        raise ValueError(
            "must not have a named group or a back-reference: Java, and so Spark, reads them differently "
            "than Python"
        )
    return string


def _matching(pattern: re.Pattern[str], sentence: str) -> Callable[[str], str]:
    def parse(string: str) -> str:
        if not pattern.fullmatch(string):
            raise ValueError(sentence)
        if is_reserved(string):
            raise ValueError(RESERVED)
        return string

    return parse


_OPEN = r"(?!\s*statefun[./])"
"""The beginning of a regular expression that excludes the namespaces which the runtime reserves."""
_TYPENAME_SCHEMA = scalar_schema("typename", type="string", pattern=f"^{_OPEN}.+/[^/]+$")
duration: Reader[timedelta] = parsed(
    parse_duration, "a duration", scalar_schema("duration", type=["string", "integer"])
)
"""A reader of a duration, such as ``15min``; a number without a unit is in milliseconds."""
date: Reader[datetime] = parsed(
    parse_date, "a date", scalar_schema("date", type=["string", "integer"])
)
"""A reader of a date with its time zone, or of milliseconds since the epoch."""
regular_expression: Described[str] = parsed(
    _regular_expression,
    "a regular expression",
    scalar_schema("regular expression", type="string", minLength=1),
)
"""A reader of a regular expression that has the same meaning in Java and in Python."""
typename: Reader[TypeName] = parsed(_typename, "a typename, <namespace>/<name>", _TYPENAME_SCHEMA)
"""A reader of a typename that is not in a namespace which the runtime reserves."""
functions: Reader[str] = parsed(
    _matching(
        _FUNCTIONS,
        "is invalid syntax for target functions. "
        "Only <namespace>/<name> or <namespace>/* are supported.",
    ),
    "functions, <namespace>/<name> or <namespace>/*",
    scalar_schema("functions", type="string", pattern=f"^{_OPEN}{_FUNCTIONS.pattern}$"),
)
"""A reader of the functions of an endpoint: one function, or all functions of a namespace."""


@described(scalar_schema("function", type="string", pattern=f"^{_OPEN}{_TARGET.pattern}$"))
def target(node: Node, problems: Problems) -> TypeName:
    """Read the typename of one function to which an ingress sends records."""
    syntax = _matching(
        _TARGET,
        "is invalid syntax for target functions. "
        "Only <namespace>/<name> is supported; list every function on its own.",
    )
    what = "a function, <namespace>/<name>"
    return TypeName.parse(parsed(syntax, what, {})(node, problems))


def list_of(read: Reader[T], what: str) -> Reader[tuple[T, ...]]:
    """Return a reader of a list that is not empty; ``what`` is the name of its items in error texts."""

    def read_list(node: Node, problems: Problems) -> tuple[T, ...]:
        items = expect(node, ListNode, f"a list of {what}", problems).items
        refuse_empty(node, what, problems)
        return read_all(partial(read, item, problems) for item in items)

    items = schema_of(read)
    schema = {"title": f"list of {what}", "type": "array", "items": items, "minItems": 1}
    return Described(read_list, schema)


def refuse_empty(node: Node, what: str, problems: Problems) -> None:
    """Report a list or mapping that is empty.

    Raises:
        Invalid: if the list or mapping is empty.
    """
    if node in (ListNode(node.location, node.path, ()), MapNode(node.location, node.path, ())):
        sentence = f"must not be empty; list at least one of: {what}"
        raise problems.report(node.location, node.path, sentence)


def pairs(what: str) -> Reader[dict[ScalarNode, Node]]:
    """Return a reader of ``name: value`` pairs: a list of single-key mappings, or one mapping."""

    def read(node: Node, problems: Problems) -> dict[ScalarNode, Node]:
        if isinstance(node, MapNode):
            return {entry.key: entry.value for entry in node.entries}
        by_name: dict[str, tuple[ScalarNode, Node]] = {}
        for item in expect(node, ListNode, f"a list of {what}", problems).items:
            if isinstance(item, BrokenNode):
                continue
            if not isinstance(item, MapNode) or len(item.entries) != 1:
                problems.report(item.location, item.path, f"expected exactly one {what}")
                continue
            [entry] = item.entries
            first, _ = by_name.setdefault(entry.key.text, (entry.key, entry.value))
            if first is not entry.key:
                sentence = f"duplicate key {entry.key.quoted}; it first appears at {first.location}"
                problems.report(entry.key.location, entry.key.path, sentence)
        return dict(by_name.values())

    return read


def pairs_schema(title: str, value: JsonSchema) -> JsonSchema:
    """Return the schema of ``name: value`` pairs whose values have the schema ``value``."""
    one = {"type": "object", "additionalProperties": value}
    many = {"type": "array", "items": {**one, "minProperties": 1, "maxProperties": 1}}
    return {"title": title, "anyOf": [one, many]}


@described(pairs_schema("list of `name: value`", {"type": ["string", "number", "boolean"]}))
def properties(node: Node, problems: Problems) -> dict[str, Node]:
    """Read the properties of a client; report values that are not a string, number or boolean."""
    by_name: dict[str, Node] = {}
    for key, value in pairs("'name: value'")(node, problems).items():
        if isinstance(value, ScalarNode) and not value.is_null:
            by_name[key.text] = value
            continue
        if not isinstance(value, BrokenNode):
            sentence = "the value of a property must be a string, a number or a boolean"
            problems.report(value.location, value.path, sentence)
        by_name[key.text] = BrokenNode(value.location, value.path)
    return by_name
