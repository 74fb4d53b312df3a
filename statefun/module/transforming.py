# SPDX-License-Identifier: Apache-2.0
"""Records through the transforms of their topics, on their way to functions and from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs

from statefun.module.topic_routes import Deserializer, TransformedTopic, route_of
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.errors import DefinitionError, FunctionError, StatefunError, ValueDecodeError
from statefun.sdk.raised import line_of, text_of
from statefun.sdk.record import IngressRecord, KafkaRecord
from statefun.sdk.types import SimpleType
from statefun.transforms.chain import Chain, id_of
from statefun.transforms.data import NOTHING, TransformError
from statefun.transforms.transform import Record

_TRANSFORMS = "transforms of "
"""The names of deserializers that apply transforms begin so."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@attrs.frozen
class _Values:
    """Reads the values of records for functions."""

    source: str
    chain: Chain

    def read(self, record: KafkaRecord) -> bytes:
        try:
            data = self.chain.value_of(place_of(record), record.value)
            return self.chain.value_codec.message(data)
        except TransformError as error:
            text = f"the transforms of {self.source} cannot take a record: {error}"
            raise ValueDecodeError(text) from None

    def refuse(self, content: bytes) -> bytes:
        raise NotImplementedError(f"{len(content)} bytes are read by another type")


def transformed_values(source: str, typename: str, chain: Chain) -> Deserializer:
    """Return what makes the values of messages out of records by transforms.

    Args:
        source: the topic or pattern that the records come from.
        typename: the type of the values that come out.
        chain: the transforms.
    """
    values = _Values(source, chain)
    # Not registered: the type of that name only reads what this one writes.
    made = SimpleType(typename, bytes, values.refuse)
    return Deserializer(
        f"{_TRANSFORMS}{source}",
        values.read,
        made,
        takes_tombstones=chain.makes_values_of_nothing,
    )


def transformed_id(chain: Chain, record: Record, key: bytes | None, value: bytes | None) -> bytes:
    """Return the id that a record goes to, when transforms have changed its key.

    Args:
        chain: the transforms.
        record: its place and time.
        key: its key.
        value: its value.

    Raises:
        TransformError: if a transform cannot take the record, or leaves no key.
        StatefunError: if a schema registry does not answer.
    """
    try:
        return id_of(chain.key_of(record, key, value)).encode()
    except (StatefunError, TransformError):
        raise
    except Exception as error:
        raise TransformError(error_text(error)) from error


def no_id(place: Record, error: StatefunError) -> FunctionError:
    """Return the error of a record whose key cannot be made now: nobody knows where it is to go.

    Args:
        place: its place.
        error: why not, which says nothing about the record.
    """
    where = f"topic {place.topic}, partition {place.partition}, offset {place.offset}"
    return FunctionError(
        f"the key of the record at {where} comes out of transforms that cannot go on: "
        f"{error.message}; see to it, and start again: nothing is lost"
    )


def transformed_topic(chain: Chain, record: IngressRecord) -> str:
    """Return the name that transforms give to the topic of a record.

    Raises:
        TransformError: if they cannot.
    """
    return chain.topic_of(place_of(record)) if chain.changes_topic else record.topic


def error_text(error: Exception) -> str:
    """Return what went wrong with a record."""
    return text_of(error) if isinstance(error, TransformError) else line_of(error)


def place_of(record: KafkaRecord | IngressRecord) -> Record:
    """Return the place and time of a record, for transforms."""
    millis = (record.timestamp - _EPOCH) // timedelta(milliseconds=1)
    return Record(record.topic, record.partition, record.offset, millis, NOTHING, NOTHING)


def transformed_record(
    message: KafkaEgressMessage, topics: Sequence[TransformedTopic], now: int
) -> KafkaEgressMessage:
    """Return the record that transforms make of another.

    Args:
        message: the record that a function sends.
        topics: of its egress.
        now: the time of a record that has none, in milliseconds since the epoch.

    Raises:
        DefinitionError: if a transform cannot take it.
    """
    chosen = route_of(topics, message.topic)
    if chosen is None or chosen.chain is None:
        return message
    millis = now if message.timestamp_millis is None else message.timestamp_millis
    key = None if message.key is None else message.key.encode()
    chain = chosen.chain
    record = Record(message.topic, message.partition, None, millis, NOTHING, NOTHING)
    made: dict[str, Any] = {"topic": message.topic, "key": message.key, "value": message.value}
    try:
        if chain.changes_value:
            data = chain.value_of(attrs.evolve(record), message.value)
            made["value"] = chain.value_codec.write(data)
        if chain.changes_key:
            data = chain.key_of(attrs.evolve(record), key, message.value)
            written = chain.key_codec.write(data)
            made["key"] = None if written is None else written.decode()
        if chain.changes_topic:
            made["topic"] = chain.topic_of(record)
    except StatefunError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"a record for egress {message.typename}, topic {message.topic}: {error_text(error)}"
        ) from error
    return KafkaEgressMessage(
        message.typename,
        **made,
        headers=message.headers,
        partition=message.partition,
        timestamp=_EPOCH + timedelta(milliseconds=millis)
        if chain.reads_time
        else message.timestamp,
    )
