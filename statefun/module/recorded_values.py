# SPDX-License-Identifier: Apache-2.0
"""Reads the time in a field of a record's value, which is as it was read from the topic: not transformed yet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import attrs

from statefun.module.topic_routes import JsonValues, TopicRoute
from statefun.sdk.annotations import is_secret_type
from statefun.sdk.event_fields import time_in_decoded, time_in_json
from statefun.sdk.structured import StructuredType
from statefun.sdk.types import default_types
from statefun.transforms.codecs import AvroCodec, JsonWithSchemaCodec, RegistryCodec

_IN_ENVELOPE = ("payload",)


@attrs.frozen
class RecordedValues:
    """The values of the records of a route."""

    typename: str
    """The type of the values that functions get."""
    is_json: bool = False
    """Whether the values are JSON, whatever their type; also if nothing but a user's deserializer knows their format."""
    within: tuple[str, ...] = ()
    """The fields of a JSON object that contain what functions get as the value."""
    codec: AvroCodec | RegistryCodec | None = None
    """The codec of values that transforms change; None if the type decodes the values, or they are JSON."""
    is_raw: bool = False
    """Whether the type alone knows the format of the values."""

    @classmethod
    def of(cls, route: TopicRoute) -> RecordedValues:
        """Return the values of a route's records."""
        if route.deserializer is None:
            is_json = isinstance(route.value_format, JsonValues)
            return cls(str(route.value_type), is_json=is_json, is_raw=route.value_format is None)
        typename = route.deserializer.value_type.typename
        match None if route.chain is None else route.chain.value_codec:
            case AvroCodec() | RegistryCodec() as codec:
                return cls(typename, codec=codec)
            case JsonWithSchemaCodec():
                return cls(typename, is_json=True, within=_IN_ENVELOPE)
            case _:
                return cls(typename, is_json=True)

    @property
    def are_secret(self) -> bool:
        """Whether no error may quote the values."""
        return is_secret_type(self.typename)

    def time_in(self, value: bytes, path: Sequence[str]) -> int:
        """Return the time in a field of a value, in milliseconds since the epoch.

        Raises:
            ValueError: if the field is missing, or is no time.
            FunctionError: if a schema registry does not answer.
            Exception: if the value cannot be decoded.
        """
        if self.is_json:
            return time_in_json(value, path, self.within)
        if self.codec is not None:
            return time_in_decoded(self.codec.plain(value), path)
        type_ = default_types.find(self.typename)
        if type_ is None or (self.is_raw and isinstance(type_, StructuredType) and type_.is_json):
            return time_in_json(value, path)
        if self.is_raw and value[:1] == b"{":
            # The type may decode JSON to objects that do not have the field.
            with suppress(ValueError):
                return time_in_json(value, path)
        return time_in_decoded(type_.decode(self.typename, value), path)
