# SPDX-License-Identifier: Apache-2.0
"""Converts messages to a file egress into records in the form of the outbox.

A record that a file cannot hold is refused here, when a function sends it: after the commit of its
micro-batch it is too late to refuse it.
"""

from __future__ import annotations

import json
import re

from statefun.files.rows import Columns, parse_row, refuse_constant
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError

FOLDER = "_"
"""The topic of records of messages without a topic; no message can name this topic."""
JSON_LINES, PARQUET = ".jsonl", ".parquet"
"""The suffixes of the names of files, by their format."""
_DEEPEST = 100
"""How deep objects and lists may be nested; readers have limits of 64 or more."""
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')
_SPACE = b" \t\r\n"
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def line_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the record of a message for JSON lines: the bytes of its value, with blanks for line breaks.

    Raises:
        DefinitionError: if its value is no JSON object, or its topic cannot be a folder.
    """
    return _record(message, None)


def row_record(columns: Columns, message: EgressMessage) -> KafkaEgressMessage:
    """Return the record of a message for a Parquet file, as JSON.

    Raises:
        DefinitionError: if its value is no JSON object, or does not fit the columns, or its topic
            cannot be a folder.
    """
    return _record(message, columns)


def _record(message: EgressMessage, columns: Columns | None) -> KafkaEgressMessage:
    if message.value_typename() == KAFKA_RECORD_TYPENAME:
        record = message
        if not isinstance(record, KafkaEgressMessage):
            record = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
        topic, value = record.topic, record.value or b""
        _check_folder(message, topic)
    else:
        topic, value = FOLDER, message.raw_value()
    try:
        text = value.decode()
        if columns is None:
            _check_json(text)
        else:
            columns.check(parse_row(text))
    except (ValueError, ArithmeticError, RecursionError) as error:
        what, cure = "a JSON object", "send a value of a JSON type, such as of a dataclass"
        if columns is not None:
            what, cure = f"{what} that fits the schema", "send what fits, or change the schema"
        if isinstance(error, RecursionError):
            cure = "nest it less"
        raise DefinitionError(
            f"a record for egress {message.typename} is {what}, which this one is not: {error}; {cure}"
        ) from None
    line = value.strip(_SPACE).translate(_BREAKS)  # strings of JSON have no line breaks
    return KafkaEgressMessage(message.typename, topic=topic, value=line)


def _check_json(text: str) -> None:
    content = json.loads(text, parse_constant=refuse_constant, parse_int=float)
    if not isinstance(content, dict):
        raise ValueError(f"it is a {type(content).__name__}")  # noqa: TRY004 - bad content
    if text.count("{") + text.count("[") > _DEEPEST and _depth(text) > _DEEPEST:
        raise RecursionError(f"it is nested more than {_DEEPEST} deep")


def _depth(text: str) -> int:
    """Return how deep the objects and lists of a JSON text are nested."""
    depth = deepest = 0
    for token in _TOKENS.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _check_folder(message: EgressMessage, topic: str) -> None:
    """Check that a topic can be the name of a folder that readers do not leave out.

    Raises:
        DefinitionError: if it cannot.
    """
    if topic.startswith((".", "_")):
        problem = "readers of folders leave out names that begin so"
    elif topic.endswith((JSON_LINES, PARQUET)):
        problem = "names of files end so"
    else:
        return
    raise DefinitionError(
        f"a record for egress {message.typename}: topic {topic} cannot be a folder: {problem}; "
        "choose another topic"
    )
