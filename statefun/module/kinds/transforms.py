# SPDX-License-Identifier: Apache-2.0
"""The ``transforms`` of a topic: those of Kafka Connect, with its names and options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from statefun.module.yaml.nodes import ListNode, Node
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
from statefun.module.yaml.shapes import Key, Reader, Values, Variants, described
from statefun.transforms.casting import CAST_KINDS, Cast
from statefun.transforms.data import Kind, TransformError
from statefun.transforms.field_transforms import (
    InsertField,
    Insertion,
    MaskField,
    ReplaceField,
    ValueToKey,
)
from statefun.transforms.java_dates import DateFormat
from statefun.transforms.nesting import ExtractField, Flatten, HoistField, SetSchemaMetadata
from statefun.transforms.paths import PathSyntax, path_of
from statefun.transforms.routers import (
    RegexRouter,
    TimestampRouter,
    check_replacement,
    python_regex,
)
from statefun.transforms.timestamps import TimestampConverter, TimeType, UnixPrecision
from statefun.transforms.transform import Part, Transform

PREFIX = "org.apache.kafka.connect.transforms."
"""The package of the transforms, which their types may begin with."""

_BLANKS = "".join(map(chr, range(33)))
"""What Java's ``trim`` takes away."""
_COMMA = re.compile(r"\s*,\s*")


@described(text.schema)
def _trimmed(node: Node, problems: Problems) -> str:
    """A text without the blanks around it, as Connect reads its options."""
    return text(node, problems).strip(_BLANKS)


def _words(what: str) -> Reader[tuple[str, ...]]:
    """Reader of a list, or of a text with commas, as Connect has it."""

    @described({"title": f"list of {what}, or text with commas", "type": ["array", "string"]})
    def read(node: Node, problems: Problems) -> tuple[str, ...]:
        if isinstance(node, ListNode):
            words = list_of(text, what)(node, problems)
        else:
            words = tuple(_COMMA.split(text(node, problems).strip()))
        if not all(words) or len(set(words)) < len(words):
            which = "an empty name" if not all(words) else "a name twice"
            raise problems.report(node.location, node.path, f"has {which}; list {what} once each")
        return words

    return read


def _pair(word: str, node: Node, problems: Problems, what: str) -> tuple[str, str]:
    first, colon, second = word.partition(":")
    if not (first.strip() and colon and second.strip()) or ":" in second:
        sentence = f"{word!r} is not of the form {what}"
        raise problems.report(node.location, node.path, sentence)
    return first.strip(), second.strip()


@described(_words("old:new").schema)  # type: ignore[attr-defined]
def _renames(node: Node, problems: Problems) -> tuple[tuple[str, str], ...]:
    return tuple(
        _pair(word, node, problems, "old:new") for word in _words("old:new")(node, problems)
    )


@described(_words("field:type").schema)  # type: ignore[attr-defined]
def _casts(node: Node, problems: Problems) -> Mapping[str, Kind]:
    """Fields with their types; the type of the whole value has no field."""
    words = _words("field:type")(node, problems)
    if len(words) == 1 and ":" not in words[0]:
        return {"": _kind(words[0], node, problems)}
    pairs = [_pair(word, node, problems, "field:type, or one type alone") for word in words]
    if len({name for name, _ in pairs}) < len(pairs):
        raise problems.report(node.location, node.path, "has a field twice; list fields once each")
    return {name: _kind(kind, node, problems) for name, kind in pairs}


def _kind(name: str, node: Node, problems: Problems) -> Kind:
    kinds = {kind.value: kind for kind in CAST_KINDS}
    if name.lower() not in kinds:
        sentence = f"Invalid type: {name}; valid values are [{', '.join(kinds)}]"
        raise problems.report(node.location, node.path, sentence)
    return kinds[name.lower()]


def _pattern(string: str) -> DateFormat:
    if not string.strip():
        raise ValueError("is empty")
    return DateFormat(string)


def _insertion(string: str) -> Insertion:
    insertion = Insertion.parse(string.strip())
    if not insertion.name:
        raise ValueError("has no name of a field")
    return insertion


_PATTERN = parsed(_pattern, "a pattern of dates", scalar_schema("pattern of dates", type="string"))
_INSERTION = parsed(_insertion, "the name of a field", scalar_schema("field name", type="string"))

EXCLUDE = Key("exclude", _words("names of fields"), "the fields to leave out", example="c1,c2")
INCLUDE = Key(
    "include",
    _words("names of fields"),
    "the only fields to keep",
    default="(all that are not excluded)",
    example=["c1", "c2"],
)
BLACKLIST = attrs.evolve(EXCLUDE, name="blacklist", doc="the older name of exclude")
WHITELIST = attrs.evolve(INCLUDE, name="whitelist", doc="the older name of include")
RENAMES = Key("renames", _renames, "the fields to rename, old:new each", example="foo:bar,abc:xyz")
FIELDS = Key("fields", _words("names of fields"), "the fields", required=True, example="user,card")
REPLACEMENT = Key(
    "replacement",
    _trimmed,
    "what numbers and texts are replaced by",
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
    "V2 for a path, whose parts are separated by dots",
    default="V1",
    example="V2",
)
SCHEMA_NAME = Key("schema.name", _trimmed, "the name of the schema", example="com.example.User")
SCHEMA_VERSION = Key("schema.version", integer(0), "the version of the schema", example=2)
TOPIC_FORMAT = Key(
    "topic.format",
    _trimmed,
    "the new name; in a module file, $${topic} and $${timestamp} stand for its parts",
    default="$${topic}-$${timestamp}",
    example="$${timestamp}.$${topic}",
)
TIMESTAMP_FORMAT = Key(
    "timestamp.format",
    _PATTERN,
    "the pattern of the time, of java.text.SimpleDateFormat",
    default="yyyyMMdd",
    example="yyyyMM",
)
REGEX = Key(
    "regex",
    parsed(python_regex, "a regular expression", regular_expression.schema),
    "the regular expression that the whole name has to match",
    required=True,
    example="(.*)-v[0-9]+",
)
REPLACEMENT_NAME = Key(
    "replacement",
    _trimmed,
    "the new name, in which $1 is the first group",
    required=True,
    example="$1",
)
DELIMITER = Key("delimiter", _trimmed, "what joins names", default=".", example="_")
SPEC = Key(
    "spec",
    _casts,
    "the fields with the types to cast them to, field:type each; or the type of the whole value",
    required=True,
    example="age:int32,weight:float64",
)
TARGET_TYPE = Key(
    "target.type",
    member("target.type", TimeType),
    "what timestamps are to be",
    required=True,
    example="string",
)
FORMAT = Key(
    "format",
    _PATTERN,
    "the pattern of texts, of java.text.SimpleDateFormat",
    default="(required if there are texts)",
    example="yyyy-MM-dd",
)
UNIX_PRECISION = Key(
    "unix.precision",
    member("unix.precision", UnixPrecision),
    "the unit of numbers",
    default="milliseconds",
    example="seconds",
)
INSERTED = {
    attribute: Key(
        f"{attribute}.field", _INSERTION, f"the field to insert for {what}", example=example
    )
    for attribute, what, example in (
        ("topic", "the topic; with ! behind it, it is required", "topic!"),
        ("partition", "the partition", "partition"),
        ("offset", "the offset; not on the way out", "offset"),
        ("timestamp", "the time of the record", "written_at"),
        ("static", "a text", "source"),
    )
}
STATIC_VALUE = Key("static.value", _trimmed, "the text of static.field", example="shop")
DEFAULTS = Key(
    "replace.null.with.default",
    flag("replace.null.with.default"),
    "whether null becomes the default of its schema",
    default=True,
    example=False,
)
_FOR_PARTS: Mapping[str, tuple[Key[Any], ...]] = {
    "ReplaceField": (EXCLUDE, INCLUDE, RENAMES, BLACKLIST, WHITELIST, DEFAULTS),
    "MaskField": (FIELDS, REPLACEMENT, DEFAULTS),
    "HoistField": (FIELD,),
    "ExtractField": (FIELD, SYNTAX, DEFAULTS),
    "SetSchemaMetadata": (SCHEMA_NAME, SCHEMA_VERSION, DEFAULTS),
    "Flatten": (DELIMITER,),
    "Cast": (SPEC, DEFAULTS),
    "TimestampConverter": (TARGET_TYPE, OPTIONAL_FIELD, FORMAT, UNIX_PRECISION, DEFAULTS),
    "InsertField": (*INSERTED.values(), STATIC_VALUE, DEFAULTS),
}
_FOR_RECORDS: Mapping[str, tuple[Key[Any], ...]] = {
    "ValueToKey": (FIELDS, DEFAULTS),
    "TimestampRouter": (TOPIC_FORMAT, TIMESTAMP_FORMAT),
    "RegexRouter": (REGEX, REPLACEMENT_NAME),
}
TRANSFORM = Variants(
    "Invalid type of transform: {type}; valid types are [{types}]",
    {
        f"{name}${part.value}": keys
        for name, keys in _FOR_PARTS.items()
        for part in (Part.KEY, Part.VALUE)
    }
    | dict(_FOR_RECORDS),
    prefix=PREFIX,
)


@described(TRANSFORM.schema)
def transform(node: Node, problems: Problems) -> Transform:
    """One transform."""
    chosen, values = TRANSFORM.read(node, problems)
    name, _, part = chosen.partition("$")
    try:
        return _MAKERS[name](values, *([Part(part)] if part else []))
    except TransformError as error:
        raise problems.report(node.location, node.path, f"{chosen} {error}") from None


def _replace_field(values: Values, part: Part) -> Transform:
    names = {}
    for key, older in ((EXCLUDE, BLACKLIST), (INCLUDE, WHITELIST)):
        if values.attempted(key) and values.attempted(older):
            raise TransformError(f"has both {key.name} and {older.name}; give one of them")
        names[key.name] = frozenset(values.get(key) or values.get(older) or ())
    return ReplaceField(
        part, names["exclude"], names["include"], values.get(RENAMES, ()), _defaults(values)
    )


def _mask_field(values: Values, part: Part) -> Transform:
    return MaskField(part, frozenset(values[FIELDS]), values.get(REPLACEMENT), _defaults(values))


def _hoist_field(values: Values, part: Part) -> Transform:
    return HoistField(part, values[FIELD])


def _extract_field(values: Values, part: Part) -> Transform:
    version = values.get(SYNTAX, PathSyntax.V1)
    return ExtractField(part, path_of(values[FIELD], version), _defaults(values))


def _set_schema_metadata(values: Values, part: Part) -> Transform:
    if not (values.attempted(SCHEMA_NAME) or values.attempted(SCHEMA_VERSION)):
        raise TransformError("needs schema.name or schema.version")
    return SetSchemaMetadata(
        part, values.get(SCHEMA_NAME), values.get(SCHEMA_VERSION), _defaults(values)
    )


def _flatten(values: Values, part: Part) -> Transform:
    return Flatten(part, values.get(DELIMITER, "."))


def _cast(values: Values, part: Part) -> Transform:
    casts = dict(values[SPEC])
    whole = casts.pop("", None)
    return Cast(part, tuple(casts.items()), whole, _defaults(values))


def _timestamp_converter(values: Values, part: Part) -> Transform:
    target, pattern = values[TARGET_TYPE], values.get(FORMAT)
    if target is TimeType.STRING and not values.attempted(FORMAT):
        raise TransformError("needs the option format, as its target.type is string")
    return TimestampConverter(
        part,
        target,
        values.get(OPTIONAL_FIELD, ""),
        pattern,
        values.get(UNIX_PRECISION, UnixPrecision.MILLISECONDS),
        _defaults(values),
    )


def _insert_field(values: Values, part: Part) -> Transform:
    if not any(values.attempted(key) for key in INSERTED.values()):
        raise TransformError(f"inserts nothing: give one of {_listed(INSERTED.values())}")
    if values.attempted(INSERTED["static"]) != values.attempted(STATIC_VALUE):
        raise TransformError("needs static.value beside static.field, and the other way round")
    inserted = {name: values.get(key) for name, key in INSERTED.items()}
    return InsertField(
        part,
        **inserted,
        static_value=values.get(STATIC_VALUE),
        replace_null_with_default=_defaults(values),
    )


def _value_to_key(values: Values) -> Transform:
    return ValueToKey(values[FIELDS], _defaults(values))


def _timestamp_router(values: Values) -> Transform:
    pattern = values.get(TIMESTAMP_FORMAT, DateFormat("yyyyMMdd"))
    return TimestampRouter(values.get(TOPIC_FORMAT, "${topic}-${timestamp}"), pattern)


def _regex_router(values: Values) -> Transform:
    regex, replacement = values[REGEX], values[REPLACEMENT_NAME]
    check_replacement(regex, replacement)
    return RegexRouter(regex, replacement)


def _defaults(values: Values) -> bool:
    return values.get(DEFAULTS, default=True)


def _listed(keys: Iterable[Key[Any]]) -> str:
    return ", ".join(key.name for key in keys)


_MAKERS: Mapping[str, Callable[..., Transform]] = {
    "ReplaceField": _replace_field,
    "MaskField": _mask_field,
    "HoistField": _hoist_field,
    "ExtractField": _extract_field,
    "SetSchemaMetadata": _set_schema_metadata,
    "Flatten": _flatten,
    "Cast": _cast,
    "TimestampConverter": _timestamp_converter,
    "InsertField": _insert_field,
    "ValueToKey": _value_to_key,
    "TimestampRouter": _timestamp_router,
    "RegexRouter": _regex_router,
}

TRANSFORMS = Key(
    "transforms",
    list_of(transform, "transforms"),
    "single-message transforms of Kafka Connect, in their order",
    default="(none)",
    example=[{"type": "ValueToKey", "fields": "id"}],
)
