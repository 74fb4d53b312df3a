# SPDX-License-Identifier: Apache-2.0
"""The options of transforms, with the same names as in Kafka Connect."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from statefun.module.yaml.nodes import ListNode, Node, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import (
    flag,
    integer,
    list_of,
    member,
    parsed,
    regular_expression,
    scalar_schema,
    text,
)
from statefun.module.yaml.shapes import Key, Reader, described
from statefun.transforms.casting import CAST_KINDS
from statefun.transforms.data import SchemaKind
from statefun.transforms.field_transforms import Insertion
from statefun.transforms.java_dates import DateFormat
from statefun.transforms.paths import PathSyntax
from statefun.transforms.routers import python_regex
from statefun.transforms.timestamps import TimeType, UnixPrecision

_BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's ``trim`` removes."""
_COMMA = re.compile(r"\s*,\s*")


@described(text.schema)
def _trimmed(node: Node, problems: Problems) -> str:
    """Read a text, and remove the blanks at its beginning and end, as Kafka Connect does."""
    return text(node, problems).strip(_BLANKS)


def _words(what: str) -> Reader[tuple[str, ...]]:
    """Return a reader of a list of words, or of a text with words between commas, as in Kafka Connect.

    ``what`` is the name of the words in error texts.
    """

    @described({"title": f"list of {what}, or text with commas", "type": ["array", "string"]})
    def read(node: Node, problems: Problems) -> tuple[str, ...]:
        if isinstance(node, ListNode):
            words = list_of(text, what)(node, problems)
        else:
            words = tuple(_COMMA.split(text(node, problems).strip()))
        if not all(words) or len(set(words)) < len(words):
            which = "an empty name" if not all(words) else "the same name twice"
            raise problems.report(
                node.location, node.path, f"must not have {which}; list each of the {what} once"
            )
        return words

    return read


def _shown(word: str, node: Node) -> str:
    """Return a word for error texts; a substitute if the word comes from a variable, as it may be a secret."""
    scalars = node.items if isinstance(node, ListNode) else [node]
    is_in_file = any(isinstance(each, ScalarNode) and word in each.source for each in scalars)
    return word if is_in_file else "the value of a variable"


def _pair(word: str, node: Node, problems: Problems, what: str) -> tuple[str, str]:
    first, colon, second = word.partition(":")
    if not (first.strip() and colon and second.strip()) or ":" in second:
        sentence = f"{_shown(word, node)!r} is not of the form {what}"
        raise problems.report(node.location, node.path, sentence)
    return first.strip(), second.strip()


@described(_words("old:new").schema)  # type: ignore[attr-defined]
def _renames(node: Node, problems: Problems) -> tuple[tuple[str, str], ...]:
    return tuple(
        _pair(word, node, problems, "old:new") for word in _words("old:new")(node, problems)
    )


@described(_words("field:type").schema)  # type: ignore[attr-defined]
def _casts(node: Node, problems: Problems) -> Mapping[str, SchemaKind]:
    """Read the types to which fields are cast, by field name; the name of a whole key or value is ``""``."""
    words = _words("field:type")(node, problems)
    if len(words) == 1 and ":" not in words[0]:
        return {"": _kind(words[0], node, problems)}
    pairs = [_pair(word, node, problems, "field:type, or one type alone") for word in words]
    if len({name for name, _ in pairs}) < len(pairs):
        raise problems.report(
            node.location, node.path, "must not have the same field twice; list each field once"
        )
    return {name: _kind(kind, node, problems) for name, kind in pairs}


def _kind(name: str, node: Node, problems: Problems) -> SchemaKind:
    kinds = {kind.value: kind for kind in CAST_KINDS}
    if name.lower() not in kinds:
        sentence = f"Invalid type: {_shown(name, node)}; valid values are [{', '.join(kinds)}]"
        raise problems.report(node.location, node.path, sentence)
    return kinds[name.lower()]


def _pattern(string: str) -> DateFormat:
    if not string.strip():
        raise ValueError("must not be empty")
    return DateFormat(string)


def _insertion(string: str) -> Insertion:
    insertion = Insertion.parse(string.strip())
    if not insertion.name:
        raise ValueError("must have the name of a field")
    return insertion


_PATTERN = parsed(_pattern, "a pattern of dates", scalar_schema("pattern of dates", type="string"))
_INSERTION = parsed(_insertion, "the name of a field", scalar_schema("field name", type="string"))

EXCLUDE = Key("exclude", _words("names of fields"), "the fields to leave out", example="c1,c2")
INCLUDE = Key(
    "include",
    _words("names of fields"),
    "the only fields to keep",
    default="(all fields that are not excluded)",
    example=["c1", "c2"],
)
BLACKLIST = attrs.evolve(EXCLUDE, name="blacklist", doc="the older name of exclude")
WHITELIST = attrs.evolve(INCLUDE, name="whitelist", doc="the older name of include")
RENAMES = Key("renames", _renames, "the fields to rename, each old:new", example="foo:bar,abc:xyz")
FIELDS = Key(
    "fields",
    _words("names of fields"),
    "the fields that are masked, or that the key is made of",
    required=True,
    example="user,card",
)
REPLACEMENT = Key(
    "replacement",
    _trimmed,
    "the value in place of numbers and texts",
    default="(0, or an empty text)",
    example="***",
)
FIELD = Key("field", _trimmed, "the name of the field", required=True, example="line")
OPTIONAL_FIELD = attrs.evolve(
    FIELD, doc="the field with the timestamp", required=False, default="(the whole value)"
)
SYNTAX = Key(
    "field.syntax.version",
    member("field.syntax.version", PathSyntax),
    "how field is read: V1 as a name, V2 as a path of names that are separated by dots",
    default="V1",
    example="V2",
)
SCHEMA_NAME = Key("schema.name", _trimmed, "the name of the schema", example="com.example.User")
SCHEMA_VERSION = Key("schema.version", integer(0), "the version of the schema", example=2)
TOPIC_FORMAT = Key(
    "topic.format",
    _trimmed,
    "the new name; in a module file, $${topic} stands for the old name and $${timestamp} for the time",
    default="$${topic}-$${timestamp}",
    example="$${timestamp}.$${topic}",
)
TIMESTAMP_FORMAT = Key(
    "timestamp.format",
    _PATTERN,
    "the pattern of the time, as of java.text.SimpleDateFormat",
    default="yyyyMMdd",
    example="yyyyMM",
)
REGEX = Key(
    "regex",
    parsed(python_regex, "a regular expression", regular_expression.schema),
    "the regular expression that the whole topic name has to match",
    required=True,
    example="(.*)-v[0-9]+",
)
REPLACEMENT_NAME = Key(
    "replacement",
    _trimmed,
    "the new topic name, in which $1 is the first group",
    required=True,
    example="$1",
)
DELIMITER = Key("delimiter", _trimmed, "the text between joined names", default=".", example="_")
SPEC = Key(
    "spec",
    _casts,
    "the fields and the types to cast them to, each field:type; or one type for the whole value",
    required=True,
    example="age:int32,weight:float64",
)
TARGET_TYPE = Key(
    "target.type",
    member("target.type", TimeType),
    "the type that timestamps are converted to",
    required=True,
    example="string",
)
FORMAT = Key(
    "format",
    _PATTERN,
    "the pattern of timestamps in texts, as of java.text.SimpleDateFormat",
    default="(required if texts are read or written)",
    example="yyyy-MM-dd",
)
UNIX_PRECISION = Key(
    "unix.precision",
    member("unix.precision", UnixPrecision),
    "the unit of Unix times",
    default="milliseconds",
    example="seconds",
)
INSERTED = {
    attribute: Key(
        f"{attribute}.field",
        _INSERTION,
        f"the name of a field to insert with {what}",
        example=example,
    )
    for attribute, what, example in (
        ("topic", "the topic; a ! after the name makes the field required", "topic!"),
        ("partition", "the partition", "partition"),
        ("offset", "the offset; not for an egress", "offset"),
        ("timestamp", "the time of the record", "written_at"),
        ("static", "the text static.value", "source"),
    )
}
STATIC_VALUE = Key("static.value", _trimmed, "the text in the field static.field", example="shop")
DEFAULTS = Key(
    "replace.null.with.default",
    flag("replace.null.with.default"),
    "whether null is replaced by the default of its schema",
    default=True,
    example=False,
)
