# SPDX-License-Identifier: Apache-2.0
"""The ``valueFormat`` of a topic: the encoding of its values."""

from __future__ import annotations

import attrs

from statefun.module.topic_routes import (
    AvroValues,
    Deserializer,
    JsonValues,
    ProtobufValues,
    RegistryValues,
    ValueFormat,
)
from statefun.module.yaml.nodes import Node, ScalarNode
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import file_content, flag, properties, text
from statefun.module.yaml.shapes import Key, Reader, Variants, described
from statefun.sdk.primitives import StringType
from statefun.sdk.record import KafkaRecord


def _read_text(record: KafkaRecord) -> str:
    return (record.value or b"").decode()


TEXT = Deserializer("text", _read_text, StringType)


DESCRIPTOR_SET = Key(
    "descriptorSet",
    file_content,
    "the file that protoc --include_imports --descriptor_set_out has written, relative to this one",
    required=True,
    example="users.desc",
)
MESSAGE = Key(
    "message", text, "the full name of the message", required=True, example="com.example.User"
)
AVRO_SCHEMA = Key(
    "schema", text, "the Avro schema, in JSON", required=True, example="${file:user.avsc}"
)
URL = Key("url", text, "the registry's URL", required=True, example="https://registry:8081")
READER_SCHEMA = Key(
    "schema",
    text,
    "the Avro schema, in JSON, that values are to have",
    default="(the one that they were written with)",
    example="${file:user.avsc}",
)
SUBJECT = Key(
    "subject",
    text,
    "where the schema is registered when functions write values of this type",
    default="(none: they cannot)",
    example="users-value",
)
REGISTRY_PROPERTIES = Key(
    "properties",
    properties,
    "further settings of confluent-kafka's SchemaRegistryClient, 'name: value' each",
    default=[],
    example=[{"basic.auth.user.info": "${REGISTRY_LOGIN}"}],
)

SCHEMAS_ENABLE = Key(
    "schemasEnable",
    flag("schemasEnable"),
    "whether each is an object of schema and payload, as Kafka Connect's JsonConverter writes with "
    "schemas.enable; functions get the payload",
    default=False,
    example=True,
)

VALUE_FORMATS = Variants(
    "Invalid value format type: {type}; valid types are [{types}]",
    {
        "raw": (),
        "text": (),
        "json": (SCHEMAS_ENABLE,),
        "protobuf": (DESCRIPTOR_SET, MESSAGE),
        "avro": (AVRO_SCHEMA,),
        "schema-registry": (URL, READER_SCHEMA, SUBJECT, REGISTRY_PROPERTIES),
    },
)


KEY_FORMATS = Variants(
    "Invalid key format type: {type}; valid types are [{types}]",
    {"text": (), "json": (SCHEMAS_ENABLE,), "avro": (AVRO_SCHEMA,)},
)


def _key_format(formats: Variants) -> Reader[JsonValues | AvroValues | None]:
    @described(formats.schema)
    def read(node: Node, problems: Problems) -> JsonValues | AvroValues | None:
        chosen, values = formats.read(node, problems)
        if chosen == "json":
            return JsonValues(values.get(SCHEMAS_ENABLE, default=False))
        return AvroValues(values[AVRO_SCHEMA]) if chosen == "avro" else None

    return read


KEY_FORMAT = Key(
    "keyFormat",
    _key_format(KEY_FORMATS),
    "what keys are encoded in; an id is a text as it is, and anything else in JSON",
    default={"type": "text"},
    example={"type": "json"},
)


_EGRESS_KEY_FORMATS = Variants(
    KEY_FORMATS.invalid, {name: KEY_FORMATS.shapes[name] for name in ("text", "json")}
)

EGRESS_KEY_FORMAT = attrs.evolve(
    KEY_FORMAT,
    read=_key_format(_EGRESS_KEY_FORMATS),
    doc="what keys are encoded in, for the transforms; without a format, a text that they make is written as it is",
)


@described(VALUE_FORMATS.schema)
def _value_format(node: Node, problems: Problems) -> ValueFormat | Deserializer | None:
    chosen, values = VALUE_FORMATS.read(node, problems)
    match chosen:
        case "text":
            return TEXT
        case "json":
            return JsonValues(values.get(SCHEMAS_ENABLE, default=False))
        case "protobuf":
            return ProtobufValues(values[DESCRIPTOR_SET], values[MESSAGE])
        case "avro":
            return AvroValues(values[AVRO_SCHEMA])
        case "schema-registry":
            given = values.get(REGISTRY_PROPERTIES, {}).items()
            return RegistryValues(
                values[URL],
                values.get(READER_SCHEMA),
                values.get(SUBJECT),
                {name: item.text for name, item in given if isinstance(item, ScalarNode)},
            )
        case _:
            return None


VALUE_FORMAT = Key(
    "valueFormat",
    _value_format,
    "what values are encoded in; other formats than raw and text define the type valueType",
    default={"type": "raw"},
    example={"type": "json"},
)
