# SPDX-License-Identifier: Apache-2.0
"""Reading the transforms of topics: their mistakes are reported before there are records."""

from __future__ import annotations

import json

import pytest

from statefun.module.kinds.transforms import PREFIX
from statefun.module.loader import parse_module
from statefun.module.topic_routes import AvroValues, JsonValues
from statefun.sdk.errors import ModuleError
from statefun.transforms.routers import TimestampRouter

AVRO = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)


def ingress(topic: str) -> str:
    """Write a module file with an ingress of one topic."""
    return (
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec:\n"
        "  id: a/in\n"
        "  address: kafka:9092\n"
        "  startupPosition: {type: earliest}\n"
        "  topics:\n"
        f"    - {{topic: users, targets: [a/b], valueType: a/User, {topic}}}\n"
    )


def json_topic(*transforms: str) -> str:
    """Write a topic of JSON with these transforms."""
    return f"valueFormat: {{type: json}}, transforms: [{', '.join(transforms)}]"


def egress(topic: str) -> str:
    """Write a module file with an egress that transforms one topic."""
    return (
        "kind: io.statefun.kafka.v1/egress\n"
        "spec:\n"
        "  id: a/out\n"
        "  address: kafka:9092\n"
        "  topics:\n"
        f"    - {{{topic}}}\n"
    )


def problem(text: str) -> str:
    """Return the only problem of a module file."""
    with pytest.raises(ModuleError) as caught:
        parse_module(text)
    [found] = caught.value.problems
    return str(found).partition("module.yaml:")[2]


@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (
            "{type: Drop$Value}",
            (
                "Invalid type of transform: Drop$Value; valid types are [ReplaceField$Key, "
                "ReplaceField$Value, MaskField$Key,"
            ),
        ),
        ("{type: Cast, spec: int8}", "Invalid type of transform: Cast; valid types are ["),
        ("{type: ValueToKey}", "missing required key 'fields': the fields"),
        ("{type: ValueToKey, fields: ''}", "must not be empty"),
        (
            "{type: ValueToKey, fields: 'a,,b'}",
            "must not have an empty name; list each of the names of fields once",
        ),
        (
            "{type: ValueToKey, fields: [a, a]}",
            "must not have the same name twice; list each of the names of fields once",
        ),
        (
            "{type: HoistField$Value, field: a, fields: b}",
            "'fields' is only used with type MaskField$Key or MaskField$Value or ValueToKey",
        ),
        (
            "{type: HoistField$Value, feild: a}",
            "unknown key 'feild'; did you mean 'field'? allowed keys: field, type",
        ),
        (
            "{type: Cast$Value, spec: 'a:int9'}",
            (
                "Invalid type: int9; valid values are [int8, int16, int32, int64, float32, float64, "
                "boolean, string]"
            ),
        ),
        ("{type: Cast$Value, spec: 'int8,a:int8'}", "'int8' is not of the form field:type, or one"),
        ("{type: ReplaceField$Value, renames: 'a:b:c'}", "'a:b:c' is not of the form old:new"),
        (
            "{type: ReplaceField$Value, exclude: a, blacklist: b}",
            "ReplaceField$Value has both options exclude and blacklist; give one of them",
        ),
        (
            "{type: TimestampConverter$Value, target.type: date-time}",
            "Invalid target.type: date-time; valid values are [string, unix, Date, Time, Timestamp]",
        ),
        (
            "{type: TimestampConverter$Value, target.type: string}",
            "TimestampConverter$Value needs the option format, because its target.type is string",
        ),
        (
            "{type: TimestampConverter$Value, target.type: unix, format: YYYY}",
            "'YYYY' is not a supported pattern of dates: Y is not one of the letters yMdDuHkKhmsSEazZX; write",
        ),
        (
            '{type: TimestampConverter$Value, target.type: unix, format: "yyyy\'x"}',
            "is not a pattern of dates: an opening quote has no closing quote",
        ),
        (
            "{type: InsertField$Value}",
            "InsertField$Value must insert a field; give one of the options topic.field,",
        ),
        (
            "{type: InsertField$Value, static.field: a}",
            "has only one of the options static.field and static.value",
        ),
        ("{type: SetSchemaMetadata$Value}", "needs the option schema.name or schema.version"),
        (
            "{type: SetSchemaMetadata$Value, schema.name: a}",
            "transforms[0], SetSchemaMetadata: SetSchemaMetadata needs a schema, but this part of the record (key or value) has no schema",
        ),
        ("{type: RegexRouter, regex: '(', replacement: a}", "is not a regular expression"),
        (
            "{type: RegexRouter, regex: '[a-z&&[^t]]+', replacement: a}",
            "'[a-z&&[^t]]+' has an unescaped [ or && in the character class that begins with [a-z&&[^t]; nested",
        ),
        (
            r"{type: RegexRouter, regex: '[\w[.-]]+', replacement: a}",
            "nested character classes and intersections are not supported: list the characters",
        ),
        (
            "{type: RegexRouter, regex: '[a--b]+', replacement: a}",
            "'[a--b]+' is a regular expression with another meaning in Python than in Java: Possible set ",
        ),
        ("{type: RegexRouter, regex: '(?u)a', replacement: a}", "is not a regular expression"),
        (
            "{type: RegexRouter, regex: a, replacement: $1}",
            "RegexRouter cannot use the replacement: the regular expression has no group 1",
        ),
        (
            "{type: RegexRouter, regex: a, replacement: a$}",
            "the replacement: $ at character 2 must",
        ),
        (
            "{type: TimestampRouter, topic.format: 'a-${topic}'}",
            (
                "the environment variable 'topic' is not set; set it, or write ${topic:-default}, or "
                "$${topic} for the text itself"
            ),
        ),
        (
            "{type: ExtractField$Key, field: 'a.`b', field.syntax.version: V2}",
            "cannot split the path of the field: an opening backtick has no closing backtick",
        ),
    ],
)
def test_wrong_options_are_reported_with_the_valid_ones(transform: str, text: str) -> None:
    """Each problem has its location in the file."""
    found = problem(ingress(json_topic(transform)))
    assert found.startswith("7:")
    assert text in found


@pytest.mark.parametrize(
    "transform",
    [
        "{type: Cast$Value, spec: '${SECRET}'}",
        "{type: Cast$Value, spec: ['a:${SECRET}']}",
        "{type: ReplaceField$Value, renames: '${SECRET}'}",
    ],
)
def test_values_of_variables_are_not_quoted(transform: str) -> None:
    """A variable may be a secret that was put in the wrong place."""
    with pytest.raises(ModuleError) as raised:
        parse_module(ingress(json_topic(transform)), environment={"SECRET": "hunter2"})
    assert "hunter2" not in str(raised.value)
    assert "the value of a variable" in str(raised.value)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (
            "transforms: [{type: Flatten$Value}]",
            "transforms of values need a valueFormat that they can read; set text, json, avro or",
        ),
        (
            (
                "valueFormat: {type: protobuf, descriptorSet: no.desc, message: a}, "
                "transforms: [{type: ValueToKey, fields: a}]"
            ),
            "cannot be read: No such file or directory",
        ),
        (
            (
                "valueFormat: {type: schema-registry, url: 'http://localhost:1'}, "
                "transforms: [{type: Flatten$Value}]"
            ),
            "transforms need one schema for all values of the topic; set schema",
        ),
        (
            "valueFormat: {type: text}, transforms: [{type: Flatten$Value}]",
            "transforms[0], Flatten: Flatten needs an object with fields, not a value of type",
        ),
        (
            (
                f"valueFormat: {{type: avro, schema: '{AVRO}'}}, transforms: "
                "[{type: ReplaceField$Value, exclude: id}, {type: ValueToKey, fields: id}]"
            ),
            "transforms[1], ValueToKey: the value has no field 'id'",
        ),
        (
            (
                f"valueFormat: {{type: avro, schema: '{AVRO}'}}, transforms: "
                "[{type: Cast$Value, spec: 'tags:string'}]"
            ),
            "transforms[0], Cast: a value of type array cannot be cast",
        ),
        (
            "valueFormat: {type: avro, schema: '{'}, transforms: [{type: Flatten$Value}]",
            "the schema is not an Avro schema: JSONDecodeError",
        ),
        (
            (
                "valueFormat: {type: json}, keyType: io.statefun.kafka/long, "
                "transforms: [{type: ValueToKey, fields: a}]"
            ),
            "'keyType' cannot be used with a keyFormat or transforms of keys, which make the id",
        ),
    ],
)
def test_transforms_that_do_not_fit_are_reported(topic: str, text: str) -> None:
    """Transforms have to fit the formats of the topic, and each other."""
    assert text in problem(ingress(topic))


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("topic: a", "missing required key 'transforms'"),
        ("transforms: [{type: RegexRouter, regex: a, replacement: b}]", "needs either topic or"),
        (
            (
                "topic: a, valueFormat: {type: schema-registry, url: 'http://localhost:1', "
                f"schema: '{AVRO}'}}, transforms: [{{type: 'MaskField$Value', fields: id}}]"
            ),
            "missing required key 'subject'",
        ),
        (
            "topic: a, keyFormat: {type: avro}, transforms: [{type: HoistField$Key, field: a}]",
            "Invalid key format type: avro; valid types are [text, json]",
        ),
    ],
)
def test_topics_of_an_egress_are_checked(topic: str, text: str) -> None:
    """Each mistake in a topic of an egress is a problem of the file."""
    assert text in problem(egress(topic))


def test_types_of_transforms_may_have_their_package() -> None:
    """The type may be the full class name, as in the configuration of a connector."""
    short, full = (
        parse_module(ingress(json_topic(f"{{type: {prefix}HoistField$Value, field: a}}")))
        for prefix in ("", PREFIX)
    )
    assert short.ingresses[0].topics[0].chain == full.ingresses[0].topics[0].chain


def test_the_default_format_of_a_timestamp_router_is_that_of_connect() -> None:
    """The dollar signs of the format are doubled only in module files."""
    [topic] = parse_module(ingress(json_topic("{type: TimestampRouter}"))).ingresses[0].topics
    assert topic.chain is not None
    [router] = topic.chain.transforms
    assert isinstance(router, TimestampRouter)
    assert router.topic_format == "${topic}-${timestamp}"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (json_topic("{type: Flatten$Value}"), JsonValues()),
        ("valueFormat: {type: json, schemasEnable: true}", JsonValues()),
        (
            "valueFormat: {type: text}, transforms: [{type: HoistField$Value, field: a}]",
            JsonValues(),
        ),
        (
            (
                f"valueFormat: {{type: avro, schema: '{AVRO}'}}, "
                "transforms: [{type: ReplaceField$Value, include: id, renames: 'id:key'}]"
            ),
            AvroValues(
                '{"type": "record", "name": "User", "fields": [{"name": "key", "type": "long"}]}'
            ),
        ),
        (f"valueFormat: {{type: avro, schema: '{AVRO}'}}", AvroValues(AVRO)),
        ("keyFormat: {type: json}", None),
    ],
)
def test_functions_get_the_format_of_transformed_values(topic: str, expected: object) -> None:
    """The format is JSON, or Avro with the transformed schema of the topic."""
    [route] = parse_module(ingress(topic)).ingresses[0].topics
    assert route.value_format == expected
