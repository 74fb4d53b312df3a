# SPDX-License-Identifier: Apache-2.0
"""Reads the key ``transforms`` of a topic: transforms of Kafka Connect, under Connect's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from statefun.module.kinds import transform_options as option
from statefun.module.yaml.nodes import Node
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import list_of
from statefun.module.yaml.shapes import Key, Values, Variants, described
from statefun.transforms.casting import Cast
from statefun.transforms.data import TransformError
from statefun.transforms.field_transforms import InsertField, MaskField, ReplaceField, ValueToKey
from statefun.transforms.java_dates import DateFormat
from statefun.transforms.nesting import ExtractField, Flatten, HoistField, SetSchemaMetadata
from statefun.transforms.paths import PathSyntax, path_of
from statefun.transforms.routers import RegexRouter, TimestampRouter, check_replacement
from statefun.transforms.timestamps import TimestampConverter, TimeType, UnixPrecision
from statefun.transforms.transform import Part, Transform

PREFIX = "org.apache.kafka.connect.transforms."
"""The Java package of the transforms, with which the type of a transform may begin."""

_FOR_PARTS: Mapping[str, tuple[Key[Any], ...]] = {
    "ReplaceField": (
        option.EXCLUDE,
        option.INCLUDE,
        option.RENAMES,
        option.BLACKLIST,
        option.WHITELIST,
        option.DEFAULTS,
    ),
    "MaskField": (option.FIELDS, option.REPLACEMENT, option.DEFAULTS),
    "HoistField": (option.FIELD,),
    "ExtractField": (option.FIELD, option.SYNTAX, option.DEFAULTS),
    "SetSchemaMetadata": (option.SCHEMA_NAME, option.SCHEMA_VERSION, option.DEFAULTS),
    "Flatten": (option.DELIMITER,),
    "Cast": (option.SPEC, option.DEFAULTS),
    "TimestampConverter": (
        option.TARGET_TYPE,
        option.OPTIONAL_FIELD,
        option.FORMAT,
        option.UNIX_PRECISION,
        option.DEFAULTS,
    ),
    "InsertField": (*option.INSERTED.values(), option.STATIC_VALUE, option.DEFAULTS),
}
_FOR_RECORDS: Mapping[str, tuple[Key[Any], ...]] = {
    "ValueToKey": (option.FIELDS, option.DEFAULTS),
    "TimestampRouter": (option.TOPIC_FORMAT, option.TIMESTAMP_FORMAT),
    "RegexRouter": (option.REGEX, option.REPLACEMENT_NAME),
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
    """Read one transform with its options; report its problems."""
    variant, values = TRANSFORM.read(node, problems)
    name, _, part = variant.partition("$")
    try:
        return _MAKERS[name](values, *([Part(part)] if part else []))
    except TransformError as error:
        raise problems.report(node.location, node.path, f"{variant} {error}") from None


def _replace_field(values: Values, part: Part) -> Transform:
    names = {}
    for key, older in ((option.EXCLUDE, option.BLACKLIST), (option.INCLUDE, option.WHITELIST)):
        if values.attempted(key) and values.attempted(older):
            raise TransformError(f"has both options {key.name} and {older.name}; give one of them")
        names[key.name] = frozenset(values.get(key) or values.get(older) or ())
    return ReplaceField(
        part, names["exclude"], names["include"], values.get(option.RENAMES, ()), _defaults(values)
    )


def _mask_field(values: Values, part: Part) -> Transform:
    return MaskField(
        part, frozenset(values[option.FIELDS]), values.get(option.REPLACEMENT), _defaults(values)
    )


def _hoist_field(values: Values, part: Part) -> Transform:
    return HoistField(part, values[option.FIELD])


def _extract_field(values: Values, part: Part) -> Transform:
    version = values.get(option.SYNTAX, PathSyntax.V1)
    return ExtractField(part, path_of(values[option.FIELD], version), _defaults(values))


def _set_schema_metadata(values: Values, part: Part) -> Transform:
    if not (values.attempted(option.SCHEMA_NAME) or values.attempted(option.SCHEMA_VERSION)):
        raise TransformError("needs the option schema.name or schema.version")
    return SetSchemaMetadata(
        part, values.get(option.SCHEMA_NAME), values.get(option.SCHEMA_VERSION), _defaults(values)
    )


def _flatten(values: Values, part: Part) -> Transform:
    return Flatten(part, values.get(option.DELIMITER, "."))


def _cast(values: Values, part: Part) -> Transform:
    casts = dict(values[option.SPEC])
    whole = casts.pop("", None)
    return Cast(part, tuple(casts.items()), whole, _defaults(values))


def _timestamp_converter(values: Values, part: Part) -> Transform:
    target, pattern = values[option.TARGET_TYPE], values.get(option.FORMAT)
    if target is TimeType.STRING and not values.attempted(option.FORMAT):
        raise TransformError("needs the option format, because its target.type is string")
    return TimestampConverter(
        part,
        target,
        values.get(option.OPTIONAL_FIELD, ""),
        pattern,
        values.get(option.UNIX_PRECISION, UnixPrecision.MILLISECONDS),
        _defaults(values),
    )


def _insert_field(values: Values, part: Part) -> Transform:
    if not any(values.attempted(key) for key in option.INSERTED.values()):
        raise TransformError(
            f"must insert a field; give one of the options {_listed(option.INSERTED.values())}"
        )
    if values.attempted(option.INSERTED["static"]) != values.attempted(option.STATIC_VALUE):
        raise TransformError(
            "has only one of the options static.field and static.value; give both or neither"
        )
    inserted = {name: values.get(key) for name, key in option.INSERTED.items()}
    return InsertField(
        part,
        **inserted,
        static_value=values.get(option.STATIC_VALUE),
        replace_null_with_default=_defaults(values),
    )


def _value_to_key(values: Values) -> Transform:
    return ValueToKey(values[option.FIELDS], _defaults(values))


def _timestamp_router(values: Values) -> Transform:
    pattern = values.get(option.TIMESTAMP_FORMAT, DateFormat("yyyyMMdd"))
    return TimestampRouter(values.get(option.TOPIC_FORMAT, "${topic}-${timestamp}"), pattern)


def _regex_router(values: Values) -> Transform:
    regex, replacement = values[option.REGEX], values[option.REPLACEMENT_NAME]
    check_replacement(regex, replacement)
    return RegexRouter(regex, replacement)


def _defaults(values: Values) -> bool:
    return values.get(option.DEFAULTS, default=True)


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
    "single-message transforms of Kafka Connect, applied in this order",
    default="(none)",
    example=[{"type": "ValueToKey", "fields": "id"}],
)
