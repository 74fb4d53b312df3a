# SPDX-License-Identifier: Apache-2.0
"""Makes records from the messages, in several forms, that functions send to egresses of the playground."""

from __future__ import annotations

import json
from collections.abc import Sequence

from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError

PLAYGROUND_RECORD_TYPENAME = "io.statefun.playground/EgressRecord"


def playground_record(topics: Sequence[str], message: EgressMessage) -> KafkaEgressMessage:
    """Return the record that a message to an egress of the playground becomes.

    ``topics`` are the topics of the egress.

    Raises:
        DefinitionError: if the record's topic is not one of ``topics``, or the message is malformed.
    """
    if isinstance(message, KafkaEgressMessage):
        record = message
    elif message.typed_value.typename == PLAYGROUND_RECORD_TYPENAME:
        record = _payload_record(message)
    else:
        record = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
    if record.topic not in topics:
        raise DefinitionError(
            f"egress {record.typename} has no topic {record.topic}; its topics are "
            f"{', '.join(topics)}"
        )
    return record


def _payload_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the record of a message whose value is a JSON object with a topic and a payload.

    The playground of Stateful Functions 3.x calls such a value an ``EgressRecord``.
    """
    try:
        content = json.loads(message.typed_value.value)
        topic, payload = content["topic"], content["payload"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DefinitionError(
            f"a value of type {PLAYGROUND_RECORD_TYPENAME} must be a JSON object with topic and "
            f"payload: {type(error).__name__}: {error}"
        ) from error
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return KafkaEgressMessage(message.typename, topic=topic, value=text)
