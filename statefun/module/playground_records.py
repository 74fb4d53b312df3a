# SPDX-License-Identifier: Apache-2.0
"""Records for the playground: as functions of any of its programs send them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError

PLAYGROUND_RECORD_TYPENAME = "io.statefun.playground/EgressRecord"


def playground_record(topics: Sequence[str], message: EgressMessage) -> KafkaEgressMessage:
    """Return the record in a message to the playground, which has one of its topics."""
    if isinstance(message, KafkaEgressMessage):
        record = message
    elif message.typed_value.typename == PLAYGROUND_RECORD_TYPENAME:
        record = _payload_record(message)
    else:
        record = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
    if record.topic not in topics:
        raise DefinitionError(
            f"egress {record.typename} has no topic {record.topic}; declared are "
            f"{', '.join(topics)}"
        )
    return record


def _payload_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the record in a value of the playground: JSON with a topic and a payload.

    From ``EgressRecord`` of the playground of Stateful Functions 3.x.
    """
    try:
        content = json.loads(message.typed_value.value)
        topic, payload = content["topic"], content["payload"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DefinitionError(
            f"a value of type {PLAYGROUND_RECORD_TYPENAME} is a JSON object with topic and payload, "
            f"which this one is not: {type(error).__name__}: {error}"
        ) from error
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return KafkaEgressMessage(message.typename, topic=topic, value=text)
