# SPDX-License-Identifier: Apache-2.0
"""Reads the keys ``valueFormat`` and ``keyFormat`` of a topic: the encodings of values and keys."""

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


TEXT = Deserializer("text", _read_text, StringType, read_content=bytes.decode)


DESCRIPTOR_SET = Key(
    "descriptorSet",
    file_content,
    "the output file of protoc --include_imports --descriptor_set_out, relative to the module file",
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
    "the Avro schema, in JSON, that values are read with",
    default="(the schema that a value was written with)",
    example="${file:user.avsc}",
)
SUBJECT = Key(
    "subject",
    text,
    "the subject under which the schema is registered when functions write values of this type",
    default="(none: functions cannot write such values)",
    example="users-value",
)
REGISTRY_PROPERTIES = Key(
    "properties",
    properties,
    "further settings of confluent-kafka's SchemaRegistryClient, each 'name: value'",
    default=[],
    example=[{"basic.auth.user.info": "${REGISTRY_LOGIN}"}],
)

SCHEMAS_ENABLE = Key(
    "schemasEnable",
    flag("schemasEnable"),
    "whether each JSON document is an object with schema and payload, as Kafka Connect's "
    "JsonConverter writes with schemas.enable; functions get the payload",
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
        variant, values = formats.read(node, problems)
        if variant == "json":
            return JsonValues(values.get(SCHEMAS_ENABLE, default=False))
        return AvroValues(values[AVRO_SCHEMA]) if variant == "avro" else None

    return read


KEY_FORMAT = Key(
    "keyFormat",
    _key_format(KEY_FORMATS),
    "the encoding of keys; a key that is a text is the id, and any other key is the id in JSON",
    default={"type": "text"},
    example={"type": "json"},
)


_EGRESS_KEY_FORMATS = Variants(
    KEY_FORMATS.invalid, {name: KEY_FORMATS.shapes[name] for name in ("text", "json")}
)

EGRESS_KEY_FORMAT = attrs.evolve(
    KEY_FORMAT,
    read=_key_format(_EGRESS_KEY_FORMATS),
    doc="the encoding of keys, for the transforms; format text writes a text as it is, and any other "
    "key in JSON",
)


@described(VALUE_FORMATS.schema)
def _value_format(node: Node, problems: Problems) -> ValueFormat | Deserializer | None:
    variant, values = VALUE_FORMATS.read(node, problems)
    match variant:
        case "text":
            return TEXT
        case "json":
            return JsonValues(values.get(SCHEMAS_ENABLE, default=False))
        case "protobuf":
            return ProtobufValues(values[DESCRIPTOR_SET], values[MESSAGE])
        case "avro":
            return AvroValues(values[AVRO_SCHEMA])
        case "schema-registry":
            items = values.get(REGISTRY_PROPERTIES, {}).items()
            return RegistryValues(
                values[URL],
                values.get(READER_SCHEMA),
                values.get(SUBJECT),
                {name: item.text for name, item in items if isinstance(item, ScalarNode)},
            )
        case _:
            return None


VALUE_FORMAT = Key(
    "valueFormat",
    _value_format,
    "the encoding of values; every format but raw and text defines the type that valueType names",
    default={"type": "raw"},
    example={"type": "json"},
)
