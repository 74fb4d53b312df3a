# SPDX-License-Identifier: Apache-2.0
"""Values whose schemas are in a schema registry: Confluent's, or a registry with the same interface.

A value begins with a zero byte and, in four bytes, the id of the schema that the value was written
with; see "Wire format" in Confluent's documentation of its serializers. Values may be in Avro or
JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from http import HTTPStatus
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from statefun.formats import avro, optional_package
from statefun.formats.recent_failures import RecentFailures
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
"""The properties whose values the registry's client expects as numbers, not as strings."""
_DEFAULTS = {"timeout": 10}
"""Default properties: a timeout in seconds, as the registry's client would otherwise wait for ever."""
_LARGEST_NUMBER = 2**32 - 1
_NO_SUCH_SCHEMA = {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
_UNREADABLE = (ValueError, TypeError, AttributeError)
"""What the registry's client raises for an answer that is not JSON, or not of the expected form."""
_Properties = tuple[tuple[str, str], ...]
_UNKNOWN = timedelta(seconds=5)
"""How long a schema counts as unknown; the registry is asked again afterwards."""
_FAILED = timedelta(seconds=1)
"""How long a request counts as failed: briefly, so that a failure policy's next attempt asks the registry again."""
_LONGEST_TEXT = 500
"""How many characters of an error are shown: a proxy may answer with a whole page."""
_MOST_SCHEMAS = 1000
"""How many schemas, and how many ids of schemas, a process caches at most."""
_failures = RecentFailures()


@attrs.frozen
class _Registered:
    """Encodes and decodes values with the schemas of a registry."""

    url: str = attrs.field(repr=False)  # it may have a password in it
    schema: str | None
    subject: str | None
    properties: _Properties = attrs.field(repr=False)

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
                "values of this type can only be read; to write values, give the type a schema and a "
                "subject"
            )
        number = _number(self.url, self.properties, self.subject, self.schema)
        return _HEADER.pack(_MAGIC, number) + avro.encode_exactly(value, self.schema)

    def deserialize(self, content: bytes) -> Any:
        schema, payload = self.parts_of(content)
        if schema.schema_type == "JSON":
            return json.loads(payload)
        return avro.decode(payload, _avro_text(schema), self.schema)

    def parts_of(self, content: bytes) -> tuple[Any, bytes]:
        """Return the schema that a value was written with, and the value without its header."""
        if len(content) < _HEADER.size:
            raise ValueError(
                f"the value must begin with a zero byte and a schema id, but has only {len(content)} bytes"
            )
        magic, number = _HEADER.unpack_from(content)
        if magic != _MAGIC:
            raise ValueError(
                f"the value must begin with a zero byte and a schema id, not with byte {magic}"
            )
        return _schema(self.url, self.properties, number), content[_HEADER.size :]


class _InvalidAnswerError(ValueError):
    """An answer has status 200, but lacks the requested information."""


def _says_unknown(error: Exception) -> bool:
    """Return whether an exception is the registry's answer that the registry does not have a schema.

    The answer must have an error code of a registry: status 404 alone may come from a proxy, or from
    another server if the URL is wrong.
    """
    code = getattr(error, "error_code", None)
    is_of_registry = isinstance(code, int) and code > 0
    return is_of_registry and getattr(error, "http_status_code", 0) in _NO_SUCH_SCHEMA


def _avro_text(schema: Any) -> str:
    """Return the JSON text of a schema of the registry, which must be an Avro schema."""
    if schema.schema_type != "AVRO":
        raise ValueError(
            f"the schema of the value has type {schema.schema_type}, which is not supported"
        )
    text: str = schema.schema_str
    return text


def _problem(schema: Any) -> str:
    """Return why an answer of the registry contains no valid schema; empty if the schema is valid."""
    if not (isinstance(schema.schema_str, str) and isinstance(schema.schema_type, str)):
        return "the schema or its type is missing"
    # A schema with references is valid, but cannot be parsed alone.
    if schema.schema_type == "AVRO" and not schema.references:
        try:
            avro.check_schema("the value", schema.schema_str)
        except DefinitionError as error:
            return error.message
    return ""


def written_avro(
    content: bytes, url: str, properties: Mapping[str, str] | None = None
) -> tuple[str, bytes]:
    """Return the Avro schema that a value was written with, and the value without its header.

    Args:
        content: the value, which begins with the header (zero byte and schema id).
        url: the URL of the registry.
        properties: as for :func:`make_schema_registry_type`.

    Raises:
        ValueError: if the header is not valid, or the registry has no Avro schema with this id.
        FunctionError: if the registry gives no valid answer.
    """
    registered = _Registered.of(url, None, None, properties)
    schema, payload = registered.parts_of(content)
    return _avro_text(schema), payload


def registered_avro(
    value: Any,
    schema: str,
    url: str,
    subject: str,
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """Register the schema of a value; return a header with the schema id, and the encoded value after it.

    Args:
        value: the value.
        schema: the Avro schema of the value, as JSON text.
        url: the URL of the registry.
        subject: the subject under which the schema is registered.
        properties: as for :func:`make_schema_registry_type`.

    Raises:
        FunctionError: if the registry does not register the schema.
        Exception: if the value does not fit the schema.
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

    Each process fetches a schema once, and caches a thousand schemas at most. A process asks again for a
    schema that the registry did not know, but not before five seconds have passed. If the registry does
    not answer, gives no valid answer, or refuses to register a schema, the invocation fails, and the
    failure policy of its function decides; for a second, further invocations that need the same answer
    fail as well.

    Args:
        typename: ``namespace/name``.
        url: the URL of the registry.
        schema: the Avro schema, as JSON text, with which values are read and written; without a
            schema, each value is read with the schema that it was written with.
        subject: the subject under which the schema is registered when a value is written; without
            a subject, values can only be read.
        properties: properties of confluent-kafka's ``SchemaRegistryClient``, such as
            ``basic.auth.user.info``.

    Raises:
        DefinitionError: if the schema is not an Avro schema, or the typename belongs to another type.
        ConfigurationError: if the packages are not installed, or the URL or a property is invalid.
    """
    if schema is not None:
        avro.check_schema(typename, schema)
    registered = _Registered.of(url, schema, subject, properties)
    try:
        _client(url, registered.properties)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - any exception here is about the settings
        # Not chained: the exception may quote a property.
        raise ConfigurationError(
            f"the schema registry of {typename} cannot be used: {type(error).__name__}; "
            "check its url and its properties, which are those of confluent-kafka's SchemaRegistryClient"
        ) from None
    return simple_type(typename, registered.serialize, registered.deserialize)


@lru_cache
def _client(url: str, properties: _Properties) -> SchemaRegistryClient:
    settings: dict[str, Any] = {
        name: int(value) if name in _NUMBERS else value for name, value in properties
    }
    client: SchemaRegistryClient = _library().SchemaRegistryClient(
        {**_DEFAULTS, **settings, "url": url}
    )
    return client


@lru_cache(_MOST_SCHEMAS)
def _schema(url: str, properties: _Properties, number: int) -> Any:
    """Return the schema with an id, ``number``; only valid schemas are cached.

    Raises:
        ValueError: if the registry has no schema with this id.
        FunctionError: if the registry gives no valid answer; the value may be valid nevertheless.
    """
    unknown = f"the registry has no schema with id {number}"
    with _asked(url, properties, number, "gives no valid answer", unknown) as client:
        schema = client.get_schema(number)
        if problem := _problem(schema):
            raise _InvalidAnswerError(
                f"status 200 for schema id {number}, but no valid schema ({problem}): {schema!r:.200}"
            )
    return schema


@lru_cache(_MOST_SCHEMAS)
def _number(url: str, properties: _Properties, subject: str, schema: str) -> int:
    """Register a schema under a subject, and return its id; only valid ids are cached.

    Raises:
        FunctionError: if the registry does not register the schema.
    """
    request = subject, schema
    with _asked(url, properties, request, "does not register the schema") as client:
        number: object = client.register_schema(subject, _library().Schema(schema, "AVRO"))
        if type(number) is not int or not 0 <= number <= _LARGEST_NUMBER:
            raise _InvalidAnswerError(f"status 200, but {number!r:.200} instead of a schema id")
    return number


@contextmanager
def _asked(
    url: str, properties: _Properties, request: Hashable, failure: str, unknown: str = ""
) -> Iterator[SchemaRegistryClient]:
    """Give the client for a request to a registry; if the request fails, let equal ones fail for a short time.

    If the registry does not answer, all requests to it fail in this time: each of them would take as long.

    Args:
        url: the URL of the registry.
        properties: the properties of the client.
        request: distinguishes the request from others to the registry.
        failure: says in the error text what the registry does instead of giving a valid answer.
        unknown: the error text if the registry answers that it does not have the requested schema; empty if
            that is a failure like others.

    Raises:
        ValueError: if the registry does not have the requested schema.
        FunctionError: if the registry gives no valid answer.
    """
    registry = url, properties
    _failures.check(registry)
    _failures.check((registry, request))
    client: Any = _client(url, properties)  # a method that is used has no types
    try:
        yield client
    except ConfigurationError:  # a package is missing
        raise
    except Exception as error:  # noqa: BLE001 - any exception means that there is no valid answer
        is_answer = hasattr(error, "http_status_code") or isinstance(error, _UNREADABLE)
        failed: Exception
        if unknown and _says_unknown(error):
            failed, period = ValueError(unknown), _UNKNOWN
        else:
            what = failure if is_answer else "does not answer"
            text = without_secrets(error, url)[:_LONGEST_TEXT]
            failed = FunctionError(f"the schema registry at {shown_uri(url)} {what}: {text}")
            period = _FAILED
        _failures.add((registry, request) if is_answer else registry, failed, period)
        raise failed from None  # the error may have a password in it
    finally:
        # The client would cache invalid answers, too, and any number of schemas.
        client.clear_caches()


def _library() -> ModuleType:
    return optional_package("confluent_kafka.schema_registry", "schema-registry")
