# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tracemalloc
from datetime import datetime, timezone

import pytest
from kinesis_server import aggregated

from statefun.kinesis.aggregation import HashRange, parts
from statefun.kinesis.shards import FetchedRecord

EVERYTHING = HashRange(0, 2**128 - 1)


def fetched(data: list[bytes]) -> list[FetchedRecord]:
    """Return records as the reader of a shard makes them."""
    return [
        FetchedRecord(
            str(10**55 + number),
            10**55 + number,
            datetime.now(timezone.utc),
            tuple(parts(f"key {number}", each, EVERYTHING)),
        )
        for number, each in enumerate(data)
    ]


@pytest.mark.parametrize(
    ("count", "size", "keys"), [(1000, 0, 1), (1000, 10, 1000), (1000, 100, 100), (1, 100, 1)]
)
def test_records_take_what_is_counted(count: int, size: int, keys: int) -> None:
    """So do aggregated records: the count limits the memory of the driver."""
    together = aggregated([(f"key {number % keys}", bytes(size)) for number in range(count)])
    data = [together if count > 1 else bytes([number]) * size for number in range(20)]
    fetched(data)  # what is made once is not counted
    tracemalloc.start()
    try:
        found = fetched(data)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert sum(len(each.parts) for each in found) == 20 * count
    assert held <= sum(each.size for each in found) <= 3 * held
