# SPDX-License-Identifier: Apache-2.0
"""Records for files in the form in which the outbox keeps records."""

from __future__ import annotations

import json

from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError

FOLDER = "records"
"""The topic of messages that name none, which is no part of a file's path."""


def file_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the record of a message: a JSON object in UTF-8 without line breaks.

    Raises:
        DefinitionError: if its value is no JSON object.
    """
    if isinstance(message, KafkaEgressMessage):
        topic, value = message.topic, message.value
    else:
        topic, value = FOLDER, message.raw_value()
    try:
        content = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        raise DefinitionError(_problem(message, f"{type(error).__name__}: {error}")) from None
    if not isinstance(content, dict):
        raise DefinitionError(_problem(message, f"it is a {type(content).__name__}"))
    line = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return KafkaEgressMessage(message.typename, topic=topic, value=line)


def _problem(message: EgressMessage, reason: str) -> str:
    return (
        f"a record for egress {message.typename} is a JSON object, which this one is not: {reason}; "
        "send a value of a JSON type, such as of a dataclass"
    )
