# SPDX-License-Identifier: Apache-2.0
"""Values whose schema is in a schema registry: Confluent's, or one with the same interface.

A value begins with a zero byte and, in four bytes, the number of the schema that it was written
with; see "Wire format" in Confluent's documentation of its serializers. Avro and JSON are read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from statefun.formats import avro, optional_package
from statefun.formats.unknown_schemas import UnknownSchemas
from statefun.sdk.errors import ConfigurationError, DefinitionError, FunctionError
from statefun.sdk.shown_uris import shown_uri, without_secrets
from statefun.sdk.types import SimpleType, simple_type

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_HEADER = struct.Struct(">bI")
_MAGIC = 0
_NUMBERS = {
    "cache.capacity",
    "cache.latest.ttl.sec",
    "max.retries",
    "retries.max.wait.ms",
    "retries.wait.ms",
    "timeout",
}
"""Properties that the client wants as numbers."""
_DEFAULTS = {"timeout": 10}
"""In seconds; the client's own default is to wait for ever."""
_LARGEST_NUMBER = 2**32 - 1
_NO_SUCH_SCHEMA = {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
_unknown = UnknownSchemas()


@attrs.frozen
class _Registered:
    url: str = attrs.field(repr=False)  # it may have a password in it
    schema: str | None
    subject: str | None
    properties: tuple[tuple[str, str], ...] = attrs.field(repr=False)

    @classmethod
    def of(
        cls,
        url: str,
        schema: str | None,
        subject: str | None,
        properties: Mapping[str, str] | None,
    ) -> _Registered:
        return cls(url, schema, subject, tuple(sorted((properties or {}).items())))

    def serialize(self, value: Any) -> bytes:
        if self.schema is None or self.subject is None:
            raise DefinitionError(
                "values of this type can only be read: to write them it needs a schema and a subject"
            )
        try:
            number = _number(self._client(), self.subject, self.schema)
        except Exception as error:  # noqa: BLE001 - whatever it is, the value was not written
            problem = self._failed("takes no schema", error)
            raise FunctionError(problem) from None
        return _HEADER.pack(_MAGIC, number) + avro.encode(value, self.schema)

    def deserialize(self, content: bytes) -> Any:
        written, payload = self.parts_of(content)
        if written.schema_type == "JSON":
            return json.loads(payload)
        return avro.decode(payload, _avro_text(written), self.schema)

    def parts_of(self, content: bytes) -> tuple[Any, bytes]:
        """Return the schema that a value was written with, and the value behind its number."""
        magic, number = _HEADER.unpack_from(content)
        if magic != _MAGIC:
            raise ValueError(f"it begins with {magic}, and not with 0 and a schema's number")
        return self._schema(number), content[_HEADER.size :]

    def _schema(self, number: int) -> Any:
        """Fetch a schema.

        Raises:
            ValueError: if the registry has none of that number.
            FunctionError: if it does not tell: then the value may be right.
        """
        unknown = f"there is no schema {number}"
        if _unknown.has((self.url, self.properties, number)):
            raise ValueError(unknown)
        client = self._client()
        try:
            found = client.get_schema(number)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no answer
            if _says_unknown(error):
                _unknown.add((self.url, self.properties, number))
                raise ValueError(unknown) from None
            raise FunctionError(self._failed("does not answer", error)) from None
        if problem := _problem(found):
            _forget(client)
            raise FunctionError(
                f"the schema registry answers for schema {number} with status 200, and without a "
                f"schema ({problem}): {found!r:.200}"
            )
        return found

    def _failed(self, what: str, error: Exception) -> str:
        """Return the text of an error; the exception itself may quote the URL."""
        text = without_secrets(error, self.url)
        return f"the schema registry at {shown_uri(self.url)} {what}: {text}"

    def _client(self) -> SchemaRegistryClient:
        return _client(self.url, self.properties)


def _says_unknown(error: Exception) -> bool:
    """Return whether an exception of the client's is a registry's word that there is no such schema.

    A proxy, or another server at a wrong URL, has no error code of a registry's.
    """
    code = getattr(error, "error_code", None)
    is_told = isinstance(code, int) and code > 0
    return is_told and getattr(error, "http_status_code", 0) in _NO_SUCH_SCHEMA


def _avro_text(written: Any) -> str:
    if written.schema_type != "AVRO":
        raise ValueError(f"its schema is in {written.schema_type}, which is not read")
    text: str = written.schema_str
    return text


def _problem(found: Any) -> str:
    """Return why an answer has no schema; empty if it has."""
    if not (isinstance(found.schema_str, str) and isinstance(found.schema_type, str)):
        return "a text is missing"
    # With references it is one, and cannot be read.
    if found.schema_type == "AVRO" and not found.references:
        try:
            avro.check_schema("the value", found.schema_str)
        except DefinitionError as error:
            return error.message
    return ""


def _forget(client: Any) -> None:
    """Make a client ask once more for what it was answered: it keeps any answer for ever."""
    client.clear_caches()


def written_avro(
    content: bytes, url: str, properties: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """Return the Avro schema that a value was written with, and the value without its header.

    Args:
        content: the value.
        url: the URL of the registry.
        properties: as for :func:`make_schema_registry_type`.

    Raises:
        ValueError: if it is no such value, or in another format.
        FunctionError: if the registry does not tell.
    """
    registered = _Registered.of(url, None, None, properties)
    written, payload = registered.parts_of(content)
    return _avro_text(written), payload


def registered_avro(
    value: Any,
    schema: str,
    url: str,
    subject: str,
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """Return a value with the number of its schema, which is registered if it is not yet.

    Args:
        value: the value.
        schema: its Avro schema, as JSON text.
        url: the URL of the registry.
        subject: the subject of the schema.
        properties: as for :func:`make_schema_registry_type`.

    Raises:
        FunctionError: if the registry does not take the schema.
        Exception: if the value is not as the schema says.
    """
    return _Registered.of(url, schema, subject, properties).serialize(value)


def make_schema_registry_type(
    typename: str,
    url: str,
    *,
    schema: str | None = None,
    subject: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> SimpleType[Any]:
    """Make and register a type that takes the schemas of its values from a registry.

    Schemas are fetched once per process; a number that the registry does not know is asked for once more
    after five seconds. A registry that does not answer fails the invocation
    that needs it, as its function's failure policy says.

    Args:
        typename: ``namespace/name``.
        url: the URL of the registry.
        schema: the Avro schema, as JSON text, with which values are read and written; without it,
            values are read with the schema that they were written with.
        subject: the subject under which the schema is registered when a value is written.
        properties: properties of confluent-kafka's ``SchemaRegistryClient``, such as
            ``basic.auth.user.info``.

    Raises:
        DefinitionError: if the schema is no Avro schema, or the typename belongs to another type.
        ConfigurationError: if the packages are not installed, or a property is unknown.
    """
    if schema is not None:
        avro.check_schema(typename, schema)
    registered = _Registered.of(url, schema, subject, properties)
    try:
        registered._client()  # noqa: SLF001 - a class of this module
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - any exception here is about its settings
        # Not chained: it may quote a property.
        raise ConfigurationError(
            f"the schema registry of {typename}: {type(error).__name__}; check its url and its "
            "properties, which are those of confluent-kafka's SchemaRegistryClient"
        ) from None
    return simple_type(typename, registered.serialize, registered.deserialize)


@lru_cache
def _client(url: str, properties: tuple[tuple[str, str], ...]) -> SchemaRegistryClient:
    settings: dict[str, Any] = {
        name: int(value) if name in _NUMBERS else value for name, value in properties
    }
    client: SchemaRegistryClient = _library().SchemaRegistryClient(
        {**_DEFAULTS, **settings, "url": url}
    )
    return client


@lru_cache
def _number(client: SchemaRegistryClient, subject: str, schema: str) -> int:
    number: object = client.register_schema(subject, _library().Schema(schema, "AVRO"))
    if type(number) is not int or not 0 <= number <= _LARGEST_NUMBER:
        _forget(client)
        raise ValueError(f"it answers with the number {number!r:.200}")
    return number


def _library() -> ModuleType:
    return optional_package("confluent_kafka.schema_registry", "schema-registry")
