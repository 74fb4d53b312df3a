# SPDX-License-Identifier: Apache-2.0
"""Registers the types that the value formats of topics define."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from statefun.module.location import Location
from statefun.module.model import Module
from statefun.module.topic_routes import (
    AvroValues,
    JsonValues,
    ProtobufValues,
    RegistryValues,
    ValueFormat,
)
from statefun.sdk.errors import StatefunError
from statefun.sdk.structured import StructuredType, make_json_type
from statefun.sdk.types import default_types


def register_types(module: Module) -> Iterator[tuple[Location, str]]:
    """Register the value types of all topics that have a value format.

    Yields:
        The location of each topic whose type cannot be registered, and the reason.
    """
    for ingress in module.routed:
        for route in ingress.topics:
            if route.value_format is not None:
                try:
                    _register(str(route.value_type), route.value_format)
                except StatefunError as error:
                    yield route.location, f"topic {route.topic}: {error.message}"


def _register(typename: str, value_format: ValueFormat) -> None:
    # Formats are imported only when they are used: they may need further packages.
    match value_format:
        case JsonValues():
            program_type = default_types.find(typename)
            if not (isinstance(program_type, StructuredType) and program_type.is_json):
                make_json_type(typename)
        case ProtobufValues(descriptor_set, message):
            protobuf = import_module("statefun.formats.protobuf")
            protobuf.make_described_protobuf_type(typename, descriptor_set, message)
        case AvroValues(schema):
            import_module("statefun.formats.avro").make_avro_type(typename, schema)
        case RegistryValues(url, schema, subject, properties):
            registry = import_module("statefun.formats.schema_registry")
            registry.make_schema_registry_type(
                typename, url, schema=schema, subject=subject, properties=properties
            )
