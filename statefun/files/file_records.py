# SPDX-License-Identifier: Apache-2.0
"""Records for files in the form in which the outbox keeps records.

A record that a file cannot hold is refused here, where a function sends it: later, when its micro-batch
is committed, nobody could.
"""

from __future__ import annotations

import json
import re

from statefun.files.rows import Columns, parse_row, refuse_constant
from statefun.sdk.egress import KAFKA_RECORD_TYPENAME, EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import DefinitionError

FOLDER = "_"
"""The topic of messages that name none; no other message can have it."""
JSON_LINES, PARQUET = ".jsonl", ".parquet"
"""How the names of files end."""
_DEEPEST = 100
"""How deep objects and lists are nested at most: readers have limits from 64 on."""
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')
_SPACE = b" \t\r\n"
_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def line_record(message: EgressMessage) -> KafkaEgressMessage:
    """Return the record of a message for JSON lines: its bytes, where line breaks are blanks.

    Raises:
        DefinitionError: if its value is no JSON object, or its topic cannot be a folder.
    """
    return _record(message, None)


def row_record(columns: Columns, message: EgressMessage) -> KafkaEgressMessage:
    """Return the record of a message for Parquet, as JSON.

    Raises:
        DefinitionError: if its value is no JSON object, or does not fit the columns, or its topic
            cannot be a folder.
    """
    return _record(message, columns)


def _record(message: EgressMessage, columns: Columns | None) -> KafkaEgressMessage:
    if message.value_typename() == KAFKA_RECORD_TYPENAME:
        sent = message
        if not isinstance(sent, KafkaEgressMessage):
            sent = KafkaEgressMessage.from_typed_value(message.typename, message.typed_value)
        topic, value = sent.topic, sent.value or b""
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
    line = value.strip(_SPACE).translate(_BREAKS)  # there are none within strings
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
    """Check that a topic can be a folder that readers look into.

    Raises:
        DefinitionError: if it cannot.
    """
    if topic.startswith((".", "_")):
        problem = "readers of folders leave out what begins so"
    elif topic.endswith((JSON_LINES, PARQUET)):
        problem = "files are called so"
    else:
        return
    raise DefinitionError(
        f"a record for egress {message.typename}: topic {topic} cannot be a folder: {problem}; "
        "choose another topic"
    )
