# SPDX-License-Identifier: Apache-2.0
"""The ``valueFormat`` of a topic: the encoding of its values."""

from __future__ import annotations

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
from statefun.module.yaml.readers import file_content, properties, text
from statefun.module.yaml.shapes import Key, Variants, described
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

VALUE_FORMATS = Variants(
    "Invalid value format type: {type}; valid types are [{types}]",
    {
        "raw": (),
        "text": (),
        "json": (),
        "protobuf": (DESCRIPTOR_SET, MESSAGE),
        "avro": (AVRO_SCHEMA,),
        "schema-registry": (URL, READER_SCHEMA, SUBJECT, REGISTRY_PROPERTIES),
    },
)


@described(VALUE_FORMATS.schema)
def _value_format(node: Node, problems: Problems) -> ValueFormat | Deserializer | None:
    chosen, values = VALUE_FORMATS.read(node, problems)
    match chosen:
        case "text":
            return TEXT
        case "json":
            return JsonValues()
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
