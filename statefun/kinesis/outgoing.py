# SPDX-License-Identifier: Apache-2.0
"""Converts the messages that functions send to a Kinesis egress into records for the outbox."""

from __future__ import annotations

import re

from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.kafka_parts import topic_problem
from statefun.sdk.kinesis_message import KinesisEgressMessage

HASH_KEY = "kinesis.explicitHashKey"
"""The name of the header that holds a record's explicit hash key."""
_LONGEST_KEY = 256
_HASH_KEYS = 2**128
_STREAM = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_HASH_KEY = re.compile(r"0|[1-9][0-9]{0,38}")


def kinesis_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the outbox record for a message to a Kinesis egress; its topic is the name of the stream.

    Raises:
        DefinitionError: if the message is no KinesisEgressMessage, or Kinesis would not accept the
            record.
    """
    if isinstance(message, KinesisEgressMessage):
        record = message
    else:
        record = KinesisEgressMessage.from_typed_value(message.typename, message.typed_value)
    problem = _problem(record)
    if problem:
        raise DefinitionError(
            f"a record for egress {record.typename}, stream {record.stream!r}: {problem}"
        )
    return KafkaEgressMessage(
        record.typename,
        topic=record.stream,
        key=record.partition_key,
        value=record.value,
        headers={HASH_KEY: record.explicit_hash_key} if record.explicit_hash_key else (),
    )


def _problem(record: KinesisEgressMessage) -> str:
    """Return why Kinesis would not accept a record; an empty string if it would."""
    if not _STREAM.fullmatch(record.stream) or topic_problem(record.stream):
        return "the name of a stream must have 1 to 128 of the characters a-z, A-Z, 0-9, ., _ and -"
    if not 1 <= len(record.partition_key) <= _LONGEST_KEY:
        length = len(record.partition_key)
        return (
            f"a partition key must have 1 to {_LONGEST_KEY} characters, but this one has {length}"
        )
    key = record.explicit_hash_key
    if key and not (_HASH_KEY.fullmatch(key) and int(key) < _HASH_KEYS):
        return f"an explicit hash key must be a number below 2**128 in decimal digits, not {key!r}"
    return ""
