# SPDX-License-Identifier: Apache-2.0
"""Builds the chain of a topic from the topic's transforms and formats, and checks the chain."""

from __future__ import annotations

from typing import NamedTuple

from statefun.formats import avro
from statefun.module.kinds.transforms import TRANSFORMS
from statefun.module.kinds.value_formats import (
    KEY_FORMAT,
    READER_SCHEMA,
    TEXT,
    VALUE_FORMAT,
)
from statefun.module.topic_routes import (
    AvroValues,
    Deserializer,
    JsonValues,
    RegistryValues,
    ValueFormat,
)
from statefun.module.yaml.nodes import MapNode, Node
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.shapes import Key, Values
from statefun.sdk.errors import StatefunError
from statefun.transforms.chain import Chain
from statefun.transforms.codecs import (
    AvroCodec,
    Codec,
    JsonCodec,
    JsonWithSchemaCodec,
    OpaqueCodec,
    RegistryCodec,
    TextCodec,
    avro_schema,
)
from statefun.transforms.data import TransformError
from statefun.transforms.transform import Transform


class ChainKeys(NamedTuple):
    """The declarations of the keys of a topic from which the topic's chain is built."""

    transforms: Key[tuple[Transform, ...]]
    key_format: Key[JsonValues | AvroValues | None]
    value_format: Key[ValueFormat | Deserializer | None]


INGRESS = ChainKeys(TRANSFORMS, KEY_FORMAT, VALUE_FORMAT)


def read_chain(keys: ChainKeys, values: Values, node: Node, problems: Problems) -> Chain | None:
    """Read the chain of a topic; return None if the chain would change no record.

    Args:
        keys: the keys of the topic that decide its chain.
        values: the values of all keys of the topic.
        node: the topic's node, for the location of problems.
        problems: the object that collects problems.

    Raises:
        Invalid: if a transform or a format is invalid, or transforms and formats do not fit.
    """
    if any(values.attempted(key) and key not in values for key in keys):
        raise Invalid
    value_format = values.get(keys.value_format)
    is_envelope = isinstance(value_format, JsonValues) and value_format.have_schemas
    try:
        chain = Chain(
            values.get(keys.transforms, ()),
            _key_codec(values.get(keys.key_format)),
            _value_codec(value_format),
            is_value_read=is_envelope,
        )
        if not chain.changes:
            return None
        if chain.reads_value and isinstance(chain.value_codec, OpaqueCodec):
            raise TransformError(_unreadable(value_format))
        format_after(chain)
    except TransformError as error:
        place = node.get(TRANSFORMS.name) if isinstance(node, MapNode) else None
        where = place or node
        raise problems.report(where.location, where.path, str(error)) from None
    return chain


def _key_codec(key_format: JsonValues | AvroValues | None) -> Codec:
    match key_format:
        case JsonValues(has_schemas):
            return JsonWithSchemaCodec() if has_schemas else JsonCodec()
        case AvroValues(schema):
            return _avro(schema)
        case _:
            return TextCodec()


def _value_codec(value_format: ValueFormat | Deserializer | None) -> Codec:
    if value_format is TEXT:
        return TextCodec()
    match value_format:
        case JsonValues(has_schemas):
            return JsonWithSchemaCodec() if has_schemas else JsonCodec()
        case AvroValues(schema):
            return _avro(schema)
        case RegistryValues(url, str(schema), subject, properties):
            return RegistryCodec(url, properties, _avro(schema), subject)
        case _:
            return OpaqueCodec()


def _avro(schema: str) -> AvroCodec:
    try:
        return AvroCodec(schema)
    except TransformError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TransformError(
            f"the schema is not an Avro schema: {type(error).__name__}: {error}"
        ) from None


def _unreadable(value_format: ValueFormat | Deserializer | None) -> str:
    """Return the error text that says why transforms cannot read values of a format."""
    if isinstance(value_format, RegistryValues):
        return f"transforms need one schema for all values of the topic; set {READER_SCHEMA.name}"
    return (
        "transforms of values need a valueFormat that they can read; set text, json, avro or "
        "schema-registry"
    )


def format_after(chain: Chain) -> ValueFormat:
    """Return the format in which functions get the values: that of the results of the transforms.

    Raises:
        TransformError: if the transforms do not fit each other, or do not fit the schemas.
    """
    schema = chain.after().value
    if isinstance(chain.value_codec, AvroCodec | RegistryCodec) and schema is not None:
        return AvroValues(avro_schema(schema))
    return JsonValues()


def check_outgoing(chain: Chain) -> None:
    """Check the chain of a topic of an egress.

    Raises:
        TransformError: if the chain would fail on every record.
    """
    if chain.reads_offset:
        raise TransformError(
            "InsertField: offset.field is not possible for an egress, since a record has no offset "
            "before it is written"
        )
    new_format = format_after(chain)
    if isinstance(new_format, AvroValues):
        try:
            avro.check_schema("the transformed values", new_format.schema)
        except StatefunError as error:
            raise TransformError(error.message) from None
