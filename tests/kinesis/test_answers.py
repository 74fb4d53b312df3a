# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.kinesis.answers import problem_of

KEYS = {"StartingHashKey": "0", "EndingHashKey": "9"}
SHARD = {
    "ShardId": "shardId-1",
    "HashKeyRange": KEYS,
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
RECORD = {
    "SequenceNumber": "1",
    "ApproximateArrivalTimestamp": datetime.now(timezone.utc),
    "Data": b"",
    "PartitionKey": "Ada",
}
TAKEN = {"SequenceNumber": "1", "ShardId": "shardId-1"}
ANSWERS: Mapping[str, dict[str, Any]] = {
    "ListStreams": {"StreamNames": []},
    "ListShards": {"Shards": [SHARD]},
    "GetShardIterator": {"ShardIterator": "AAAA"},
    "GetRecords": {"Records": [RECORD, RECORD], "MillisBehindLatest": 0},
    "PutRecords": {"FailedRecordCount": 1, "Records": [TAKEN, {"ErrorCode": "InternalFailure"}]},
}
FREE: Mapping[Any, type] = {"Data": bytes, "PartitionKey": str}
"""What may have any value of its type, also an empty one."""
OTHERS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.binary()
    | st.just("")
    | st.just([{}])
    | st.just({"a": "b"})
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside one."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, each in inside:
        found.append((*path, key))
        if isinstance(each, dict | list):
            found += places(each, (*path, key))
    return found


@pytest.mark.parametrize("operation", ANSWERS)
def test_documented_answers_are_taken(operation: str) -> None:
    """Answers may have further fields."""
    assert not problem_of(operation, {**ANSWERS[operation], "ResponseMetadata": {}})


@given(st.sampled_from(sorted(ANSWERS)), OTHERS, st.data())
def test_a_part_that_is_missing_or_of_another_type_is_found(
    operation: str, other: Any, data: st.DataObject
) -> None:
    """The problem is found wherever the part is in the answer; data may be any bytes, and only bytes."""
    answer = deepcopy(ANSWERS[operation])
    *path, last = data.draw(st.sampled_from(places(answer)))
    inside: Any = answer
    for key in path:
        inside = inside[key]
    if isinstance(inside, dict) and data.draw(st.booleans()):
        del inside[last]
    else:
        inside[last] = other

    is_documented = last in FREE and isinstance(inside.get(last), FREE[last])
    assert bool(problem_of(operation, answer)) != is_documented


def test_counts_that_disagree_are_found() -> None:
    """With such an answer it is not known which records were refused."""
    answer = {**ANSWERS["PutRecords"], "FailedRecordCount": 0}

    assert (
        problem_of("PutRecords", answer)
        == "FailedRecordCount is 0, and 1 records have an ErrorCode"
    )
