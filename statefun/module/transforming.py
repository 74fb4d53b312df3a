# SPDX-License-Identifier: Apache-2.0
"""Applies the transforms of topics to the records of ingresses and egresses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs

from statefun.module.topic_routes import Deserializer, TransformedTopic, route_of
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.errors import (
    DefinitionError,
    FunctionError,
    RecordError,
    StatefunError,
    ValueDecodeError,
)
from statefun.sdk.raised import line_of, text_of
from statefun.sdk.record import EncodedRecord, IngressRecord, KafkaRecord
from statefun.sdk.times import from_epoch_millis, to_epoch_millis
from statefun.sdk.types import SimpleType
from statefun.transforms.chain import Chain
from statefun.transforms.data import TransformError
from statefun.transforms.transform import Part

_make_record = partial(tuple.__new__, EncodedRecord)
_KEY, _VALUE, _TOPIC = (frozenset({part}) for part in (Part.KEY, Part.VALUE, Part.TOPIC))


@attrs.frozen
class _Values:
    """Applies the transforms of a topic to records, to make the values of messages."""

    source: str
    chain: Chain

    def read(self, record: KafkaRecord) -> bytes:
        try:
            transformed = self.chain.for_function(encoded_record(record), _VALUE)
        except TransformError as error:
            text = f"the transforms of {self.source} failed on a record: {error}"
            raise ValueDecodeError(text) from None
        return transformed.value or b""

    def refuse(self, content: bytes) -> bytes:
        raise NotImplementedError(
            f"the result of transforms ({len(content)} bytes) must be decoded with the type that is registered for its "
            "typename"
        )


def transformed_values(source: str, typename: str, chain: Chain) -> Deserializer:
    """Return a deserializer that applies the transforms of a topic to values.

    Args:
        source: the topic or pattern of the records.
        typename: the type of the transformed values.
        chain: the transforms.
    """
    values = _Values(source, chain)
    # Not registered: the registered type of this name decodes the bytes that this one writes.
    value_type = SimpleType(typename, bytes, values.refuse)
    return Deserializer(
        f"transforms of {source}",
        values.read,
        value_type,
        takes_tombstones=chain.makes_values_of_nothing,
    )


def transformed_id(chain: Chain, record: EncodedRecord) -> bytes:
    """Return the id of the address that a record goes to, if transforms change the record's key.

    Raises:
        RecordError: if a transform fails on the record, or the key becomes null.
        StatefunError: if a schema registry does not answer.
    """
    try:
        return chain.for_function(record, _KEY).key or b""
    except StatefunError:
        raise
    except Exception as error:
        raise RecordError(_text(error)) from error


def no_id(place: EncodedRecord, error: StatefunError) -> FunctionError:
    """Return the error for a record whose key cannot be transformed, since a service does not answer.

    The error stops the application: without the key, the address of the record is unknown, and no failure
    policy may drop the record.

    Args:
        place: the record whose key cannot be computed.
        error: the reason, such as a schema registry that does not answer.
    """
    where = f"topic {place.topic}, partition {place.partition}, offset {place.offset}"
    return FunctionError(
        f"transforms cannot compute the key of the record at {where}: {error.message}; remove the "
        "cause, and start the application again: no record is lost"
    )


def transformed_topic(chain: Chain, record: IngressRecord) -> str:
    """Return the name of a record's topic after the transforms.

    Raises:
        TransformError: if a transform fails on the record.
    """
    if not chain.changes_topic:
        return record.topic
    topic, partition, offset, time, headers = record
    place = encoded_record(KafkaRecord(None, None, topic, partition, offset, time, headers))
    return chain.for_function(place, _TOPIC).topic


def encoded_record(record: KafkaRecord) -> EncodedRecord:
    """Convert a record of an ingress to the form that transforms read."""
    key, value, topic, partition, offset, time, _ = record
    return _make_record((topic, partition, offset, to_epoch_millis(time), key, value))


def _text(error: Exception) -> str:
    """Return the text of an error, after the name of its class unless the class is TransformError."""
    return text_of(error) if isinstance(error, TransformError) else line_of(error)


def transformed_record(
    message: KafkaEgressMessage, topics: Sequence[TransformedTopic], now: int
) -> KafkaEgressMessage:
    """Apply the transforms of a topic to a record that a function sends to an egress.

    Args:
        message: the record that a function sends.
        topics: the topics of the egress that have transforms.
        now: the timestamp of a record that has none, in milliseconds since the epoch.

    Raises:
        DefinitionError: if a transform fails on the record.
    """
    transforms = route_of(topics, message.topic)
    if transforms is None or transforms.chain is None:
        return message
    millis = now if message.timestamp_millis is None else message.timestamp_millis
    key = None if message.key is None else message.key.encode()
    record = EncodedRecord(message.topic, message.partition, None, millis, key, message.value)
    try:
        transformed = transforms.chain.for_topic(record)
        new_key = None if transformed.key is None else transformed.key.decode()
    except StatefunError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"a record for egress {message.typename}, topic {message.topic}: {_text(error)}"
        ) from error
    return KafkaEgressMessage(
        message.typename,
        topic=transformed.topic,
        key=new_key,
        value=transformed.value,
        headers=message.headers,
        partition=message.partition,
        timestamp=from_epoch_millis(millis) if transforms.chain.reads_time else message.timestamp,
    )
