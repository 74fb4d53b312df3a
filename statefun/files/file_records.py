# SPDX-License-Identifier: Apache-2.0
"""Converts the messages that functions send to a file egress into records for the outbox.

If a message cannot become a record of a file, the function that sends the message gets an error at once.
The record is written after the commit of the micro-batch, when no error can reach the function any more.
"""

from __future__ import annotations

import json
import re

from statefun.files.rows import ParquetColumns, parse_row, raise_for_constant
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError

OWN_FOLDER = "_"
"""The topic of records whose messages name no topic; they are written into the egress's own folder.

No message can name this topic.
"""
JSON_LINES, PARQUET = ".jsonl", ".parquet"
"""The suffixes of the names of files that an egress writes, one for each format."""
_DEEPEST = 100
"""How deep objects and lists of a record may be nested; many readers of JSON have such a limit."""
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')
_SPACE = b" \t\r\n"
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def line_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the outbox record of a message for a file of JSON lines.

    The record has the bytes of the message's value, with blanks instead of line breaks.

    Raises:
        DefinitionError: if the value is not a JSON object, or the topic cannot name a folder.
    """
    return _record(message, None)


def row_record(columns: ParquetColumns, message: EgressMessage) -> KafkaEgressMessage:
    """Return the outbox record of a message for a Parquet file; its value is a row as JSON.

    Raises:
        DefinitionError: if the value is not a JSON object, or does not fit the columns, or the topic
            cannot name a folder.
    """
    return _record(message, columns)


def _record(message: EgressMessage, columns: ParquetColumns | None) -> KafkaEgressMessage:
    if message.value_typename() == KAFKA_RECORD_TYPENAME:
        record = message
        if not isinstance(record, KafkaEgressMessage):
            record = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
        topic, value = record.topic, record.value or b""
        _check_folder(message, topic)
    else:
        topic, value = OWN_FOLDER, message.raw_value()
    try:
        text = value.decode()
        if columns is None:
            _check_json(text)
        else:
            columns.check(parse_row(text))
    except (ValueError, ArithmeticError, RecursionError) as error:
        what, cure = "a JSON object", "send a value of a JSON type, such as of a dataclass"
        if columns is not None:
            what, cure = (
                f"{what} that fits the schema",
                "send a value that fits, or change the schema",
            )
        if isinstance(error, RecursionError):
            cure = "send a value that is nested less"
        raise DefinitionError(
            f"a record for egress {message.typename} must be {what}, but this one is not: {error}; {cure}"
        ) from None
    line = value.strip(_SPACE).translate(_BREAKS)  # strings of JSON have no line breaks
    return KafkaEgressMessage(message.typename, topic=topic, value=line)


def _check_json(text: str) -> None:
    content = json.loads(text, parse_constant=raise_for_constant, parse_int=float)
    if not isinstance(content, dict):
        raise ValueError(f"the value is a {type(content).__name__}")  # noqa: TRY004 - bad content
    if text.count("{") + text.count("[") > _DEEPEST and _depth(text) > _DEEPEST:
        raise RecursionError(f"objects and lists must not be nested more than {_DEEPEST} deep")


def _depth(text: str) -> int:
    """Return how deeply the objects and lists of a JSON text are nested."""
    depth = deepest = 0
    for token in _TOKENS.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _check_folder(message: EgressMessage, topic: str) -> None:
    """Check that a topic can name a folder that readers of the egress's folder do not ignore.

    Raises:
        DefinitionError: if the topic begins with ``.`` or ``_``, or ends like the name of a file.
    """
    if topic.startswith((".", "_")):
        problem = "readers leave out folders whose names begin with . or _"
    elif topic.endswith((JSON_LINES, PARQUET)):
        problem = f"{JSON_LINES} and {PARQUET} are the ends of names of files"
    else:
        return
    raise DefinitionError(
        f"a record for egress {message.typename}: topic {topic} cannot name a folder: {problem}; "
        "choose another topic"
    )
