# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.kinesis import shard_tasks
from statefun.kinesis.aggregation import HashRange
from statefun.kinesis.shard_tasks import read_task, tasks_of
from statefun.kinesis.shards import FetchedRecord, Shard

Fetched = tuple[Shard, list[FetchedRecord], int]
KEY = "Ada"
FIRST = 7
"""The offset of the first record of each shard."""


def fetched(shards: list[list[list[bytes]]]) -> list[Fetched]:
    """Return records of shards, given the values that are aggregated in each record of each shard."""
    return [
        (
            Shard("users", f"shardId-{partition:012}", HashRange(0, 1)),
            [
                FetchedRecord(
                    str(number),
                    number,
                    datetime.fromtimestamp(0, timezone.utc),
                    tuple((KEY, value) for value in values),
                )
                for number, values in enumerate(records)
            ],
            FIRST,
        )
        for partition, records in enumerate(shards)
    ]


def tasks(shards: list[Fetched]) -> list[list[tuple[int, int, str, bytes]]]:
    """Return partition, offset, sequence number and value of all records of each task."""
    return [
        [
            (
                row["partition"],
                row["offset"],
                row["headers"][0]["value"].decode(),
                row["value"],
            )
            for batch in read_task(task)
            for row in batch.to_pylist()
        ]
        for task in tasks_of(shards)
    ]


def test_many_shards_with_few_records_are_one_task() -> None:
    """A micro-batch of 500 shards does not start 500 tasks."""
    [task] = tasks(fetched([[[b"Ada"]]] * 500))

    assert task == [(partition, FIRST, "0", b"Ada") for partition in range(500)]


@given(st.lists(st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=12), max_size=6))
def test_tasks_have_all_records_in_order(shards: list[list[list[bytes]]]) -> None:
    """Each task but the last one is worth its start, and no task is larger than its limits allow."""
    expected = [
        (partition, FIRST + offset, str(number), value)
        for partition, records in enumerate(shards)
        for offset, (number, value) in enumerate(
            (number, value) for number, values in enumerate(records) for value in values
        )
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_tasks, "_TASK_RECORDS", 10)
        patch.setattr(shard_tasks, "_TASK_BYTES", 100)
        patch.setattr(shard_tasks, "_FEW_RECORDS", 5)
        found = tasks(fetched(shards))

    sizes = [sum(len(KEY) + len(value) for *_, value in task) for task in found]
    assert [row for task in found for row in task] == expected
    assert all(len(task) >= 5 or size >= 100 for task, size in zip(found[:-1], sizes, strict=False))
    assert all(0 < len(task) < 10 + 4 for task in found)  # the parts of a record stay together
