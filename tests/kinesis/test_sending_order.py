# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from statefun.components.running import EgressRecord
from statefun.kinesis.sending_order import SendingOrder

KEYS = st.tuples(st.sampled_from(["one", "other"]), st.sampled_from([b"Ada", b"Bob", b"Eve"]))


@given(st.lists(KEYS, max_size=15), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32))
def test_keys_keep_their_order_whatever_is_refused(
    keys: list[tuple[str, bytes]], most_records: int, size: int, seed: int
) -> None:
    """One record of a key is sent at a time, a request has records of one stream, and all are confirmed."""
    random = Random(seed)
    records = [EgressRecord(stream, key, bytes(size), None) for stream, key in keys]
    order, under_way, written = SendingOrder(records), list[int](), list[int]()
    while not order.is_done:
        request = order.next_request(most_records, 3 * (size + 3))
        assert len(request) <= min(most_records, 3)
        assert len({records[position].topic for position in request}) <= 1
        under_way += request
        assert len({keys[position] for position in under_way}) == len(under_way) > 0
        for position in random.sample(under_way, random.randint(1, len(under_way))):
            under_way.remove(position)
            if random.random() < 0.5:
                order.confirm(position)
                written.append(position)
            else:
                order.enqueue(position)
        gaps = [position for position in range(len(keys)) if position not in written]
        assert order.confirmed == min(gaps, default=len(keys))

    assert sorted(written) == [*range(len(keys))]
    for key in set(keys):
        mine = [position for position in written if keys[position] == key]
        assert mine == sorted(mine)


def test_other_keys_do_not_wait_for_one() -> None:
    """However many records a key has: with ten keys, ten records are sent at once."""
    order = SendingOrder(
        [EgressRecord("one", b"%d" % (number // 100), b"", None) for number in range(1000)]
    )

    assert order.next_request(500, 1_000_000) == [*range(0, 1000, 100)]
    assert order.next_request(500, 1_000_000) == []


def test_a_record_that_is_too_large_for_a_request_goes_alone() -> None:
    """Kinesis decides about such a record."""
    order = SendingOrder(
        [EgressRecord("one", b"%d" % number, bytes(20), None) for number in (0, 1)]
    )

    assert [order.next_request(10, 5), order.next_request(10, 5)] == [[0], [1]]
