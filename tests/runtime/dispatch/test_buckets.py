# SPDX-License-Identifier: Apache-2.0
"""Timer buckets whose messages arrive in several chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.protocol.runtime_pb2 import Bucket, DelayedMessage
from statefun.runtime.dispatch.buckets import DELAYED, RELEASED, TICK, run_bucket
from statefun.runtime.dispatch.groups import AddressValues, Columns, Group
from statefun.runtime.rows.effects import Effects
from statefun.runtime.timers.wheel import BUCKET, bucket_key

NUMBER = 86_400
"""Of some bucket."""
Chunks = Sequence[Sequence[tuple[int, int]]]
"""Messages by chunk: each with its number and how many bytes it has."""


def groups(chunks: Chunks, values: AddressValues, *, due: bool) -> Iterator[Group]:
    """Return what a bucket gets, chunk by chunk; a tick comes last."""
    key = bucket_key(NUMBER)
    for place, chunk in enumerate(chunks):
        is_last = place == len(chunks) - 1
        arrived = [entry(number, size) for number, size in chunk]
        typenames = [DELAYED] * len(arrived)
        if is_last and due:
            arrived, typenames = [*arrived, b""], [*typenames, TICK]
        count = len(arrived)
        columns = Columns([None] * count, typenames, arrived, [None] * count, lambda *_: None)
        yield Group(key, columns, 0, count, values, is_last)


def entry(number: int, size: int) -> bytes:
    """Return what a task sends to a bucket."""
    message = DelayedMessage(
        target=b"%d\0t/f" % (number % 3), sequence=number, value=bytes(size), due=number
    )
    return Bucket(messages=[message]).SerializeToString()


def outcome(chunks: Chunks, *, due: bool) -> tuple[list[tuple[bytes, int]], str, list[int]]:
    """Run a bucket; return to whom it has sent which messages, and what it holds then."""
    values, effects = AddressValues(None), Effects()
    so_far = []
    for group, chunk in zip(groups(chunks, values, due=due), chunks, strict=True):
        run_bucket(group, effects)
        so_far.append(sum(len(entry(*each)) for each in chunk))
        if not group.last:  # joined, each would be copied for each one behind it
            assert [len(held.value) for held in values.values.values()] == so_far
    assert set(values.values) <= {BUCKET}
    sent = []
    for batch in pa.ipc.open_stream(effects.messages.take()) if effects else ():
        for target, typename, value in zip(
            *(batch[name].to_pylist() for name in ("target", "typename", "value")), strict=True
        ):
            if typename == RELEASED:
                sent.append((b"", DelayedMessage.FromString(value).sequence))
            else:
                sent.extend((target, each.sequence) for each in Bucket.FromString(value).messages)
    held = values.values.get(BUCKET)
    if held is None:
        return sent, "", []
    return sent, held.typename, [each.sequence for each in Bucket.FromString(held.value).messages]


@pytest.mark.parametrize("due", [True, False])
@given(
    sizes=st.lists(st.sampled_from([0, 10, 30_000]), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_chunks_make_no_difference(due: bool, sizes: list[int], cuts: list[int]) -> None:
    """However a bucket's messages are cut, it does the same; nothing is joined chunk by chunk."""
    messages = list(enumerate(sizes))
    bounds = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    chunks = [messages[a:b] for a, b in pairwise(bounds) if a < b]

    sent, typename, held = outcome(chunks, due=due)
    expected_sent, expected_typename, expected_held = outcome([messages], due=due)

    assert (typename, held) == (expected_typename, expected_held)
    assert sorted(sent) == sorted(expected_sent)
    if due:
        assert sent == expected_sent
