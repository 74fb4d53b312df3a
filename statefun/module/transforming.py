# SPDX-License-Identifier: Apache-2.0
"""Records through the transforms of their topics, on their way to functions and from them."""

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
    """Reads the values of records for functions."""

    source: str
    chain: Chain

    def read(self, record: KafkaRecord) -> bytes:
        try:
            made = self.chain.for_function(encoded_record(record), _VALUE)
        except TransformError as error:
            text = f"the transforms of {self.source} cannot take a record: {error}"
            raise ValueDecodeError(text) from None
        return made.value or b""

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
        f"transforms of {source}",
        values.read,
        made,
        takes_tombstones=chain.makes_values_of_nothing,
    )


def transformed_id(chain: Chain, record: EncodedRecord) -> bytes:
    """Return the id that a record goes to, when transforms have changed its key.

    Raises:
        RecordError: if a transform cannot take the record, or leaves no key.
        StatefunError: if a schema registry does not answer.
    """
    try:
        return chain.for_function(record, _KEY).key or b""
    except StatefunError:
        raise
    except Exception as error:
        raise RecordError(_text(error)) from error


def no_id(place: EncodedRecord, error: StatefunError) -> FunctionError:
    """Return the error of a record whose key cannot be made now: nobody knows where it is to go.

    Args:
        place: the record.
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
    if not chain.changes_topic:
        return record.topic
    topic, partition, offset, time, headers = record
    place = encoded_record(KafkaRecord(None, None, topic, partition, offset, time, headers))
    return chain.for_function(place, _TOPIC).topic


def encoded_record(record: KafkaRecord) -> EncodedRecord:
    """Return a record of an ingress as its topic has it."""
    key, value, topic, partition, offset, time, _ = record
    return _make_record((topic, partition, offset, to_epoch_millis(time), key, value))


def _text(error: Exception) -> str:
    return text_of(error) if isinstance(error, TransformError) else line_of(error)


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
    record = EncodedRecord(message.topic, message.partition, None, millis, key, message.value)
    try:
        made = chosen.chain.for_topic(record)
        made_key = None if made.key is None else made.key.decode()
    except StatefunError:
        raise
    except Exception as error:
        raise DefinitionError(
            f"a record for egress {message.typename}, topic {message.topic}: {_text(error)}"
        ) from error
    return KafkaEgressMessage(
        message.typename,
        topic=made.topic,
        key=made_key,
        value=made.value,
        headers=message.headers,
        partition=message.partition,
        timestamp=from_epoch_millis(millis) if chosen.chain.reads_time else message.timestamp,
    )
