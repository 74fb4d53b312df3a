# SPDX-License-Identifier: Apache-2.0
"""Detects HTTP answers that do not come from Kinesis, such as an HTML page of a proxy.

boto3 would return such a page as an answer without any fields, and the reader would take that for an
answer without records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

_EVENT = "response-received.kinesis"
_SHOWN = 200
"""How many bytes of a wrong answer an error text shows."""


class UndocumentedAnswerError(Exception):
    """The answer to a request does not come from Kinesis; the error text shows how the answer begins."""


def check_answers(client: Any) -> None:
    """Make all requests of a boto3 client raise UndocumentedAnswerError if Kinesis cannot have answered."""
    client.meta.events.register(_EVENT, _check)


def problem_of(operation: str, answer: Mapping[str, Any]) -> str:
    """Return why an answer cannot come from Kinesis; an empty string if it can.

    >>> problem_of("GetShardIterator", {"ShardIterator": "AAAA"})
    ''
    >>> problem_of("GetRecords", {"Records": [], "NextShardIterator": "AAAA"})
    'MillisBehindLatest is None'
    """
    for name, is_right in _FIELDS.get(operation, {}).items():
        if not is_right(answer.get(name)):
            return f"{name} is {_short(answer.get(name))}"
    if operation == "PutRecords":
        errors = sum(bool(each.get("ErrorCode")) for each in answer["Records"])
        if errors != answer["FailedRecordCount"]:
            return f"FailedRecordCount is {answer['FailedRecordCount']}, and {errors} records have an ErrorCode"
    return ""


def _is_number(value: object) -> bool:
    """Return whether a value is a string of digits, as Kinesis writes long numbers."""
    return isinstance(value, str) and value.isdecimal()


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0  # bool is a subclass of int


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_some(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def _has(**fields: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, dict)
        and all(is_right(value.get(name)) for name, is_right in fields.items())
    )


def _is_list(is_item: Callable[[Any], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_item, value))


_SHARD = _has(
    ShardId=_is_text,
    HashKeyRange=_has(StartingHashKey=_is_number, EndingHashKey=_is_number),
    SequenceNumberRange=_has(StartingSequenceNumber=_is_number),
)
_RECORD = _has(
    SequenceNumber=_is_number,
    ApproximateArrivalTimestamp=_is_some(datetime),
    Data=_is_some(bytes),
    PartitionKey=_is_some(str),
)
_WRITTEN, _REFUSED = _has(SequenceNumber=_is_number, ShardId=_is_text), _has(ErrorCode=_is_text)
_FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "ListStreams": {"StreamNames": _is_list(_is_text)},
    "ListShards": {"Shards": _is_list(_SHARD)},
    "GetShardIterator": {"ShardIterator": _is_text},
    "GetRecords": {"MillisBehindLatest": _is_count, "Records": _is_list(_RECORD)},
    "PutRecords": {
        "FailedRecordCount": _is_count,
        "Records": _is_list(lambda each: _WRITTEN(each) != _REFUSED(each)),
    },
}
"""For each operation, the fields of its answer that this package uses, and a check of each field."""


def _check(
    response_dict: Mapping[str, Any] | None, parsed_response: Mapping[str, Any] | None, **_: Any
) -> None:
    if response_dict is None or parsed_response is None or "Error" in parsed_response:
        return  # botocore reports this answer
    operation = response_dict["context"]["operation_name"]
    problem = problem_of(operation, parsed_response)
    if problem:
        kind = response_dict["headers"].get("Content-Type", "without a content type")
        body = bytes(response_dict["body"][:_SHOWN])
        raise UndocumentedAnswerError(
            f"the answer to {operation} does not come from Kinesis ({problem}): HTTP status "
            f"{response_dict['status_code']}, {kind}, {body!r}"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
