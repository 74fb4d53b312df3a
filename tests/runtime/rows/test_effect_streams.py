# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.engine import effects as engine_effects
from statefun.engine.effects import EffectRows, row_size
from statefun.engine.row import Row
from statefun.engine.sinks import EgressRecord
from statefun.runtime.dispatch.segments import InlineBudget
from statefun.runtime.egress import lane
from statefun.runtime.egress.lane import _portions
from statefun.runtime.rows import effect_streams
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, arrow_stream

LARGE = b"x" * 1_000_000


@pytest.mark.parametrize(
    "record",
    [
        EgressRecord("topic", LARGE, None, None),
        EgressRecord("topic", None, LARGE, None),
        EgressRecord("topic", None, None, [("name", LARGE)]),
        EgressRecord("topic", None, None, [(LARGE.decode(), None)]),
        EgressRecord("topic", None, type("Own", (bytes,), {})(LARGE), None),
        Row(LARGE, b"", "t/v", b"", None),
        Row(b"", LARGE, "t/v", b"", None),
        Row(b"", b"", LARGE.decode(), b"", None),
        Row(b"", b"", "t/v", LARGE, None),
        Row(b"", b"", "t/v", b"", LARGE.decode()),
    ],
)
def test_every_column_counts(record: EgressRecord | Row) -> None:
    """Memory is bounded by whole rows, whichever column has their bytes."""
    rows = EffectRows()

    rows.append(record)

    assert rows.size >= len(LARGE)


@given(st.lists(st.tuples(*[st.integers(0, 900)] * 3), max_size=60))
def test_chunks_are_bounded_by_whole_records(sizes: list[tuple[int, int, int]]) -> None:
    """A chunk exceeds the limit by less than its last record, and each record is in one chunk."""
    records = [
        EgressRecord("topic", b"k" * key, b"v" * value, [("h", b"h" * header)])
        for key, value, header in sizes
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane, "_PORTION_BYTES", 1000)
        chunks = list(_portions(records, 50))

    assert [record for chunk in chunks for record in chunk] == records
    places = iter(sizes)
    for chunk in chunks:
        assert sum(sum(next(places)) for _ in chunk[:-1]) < 1000
        next(places)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300_000)), max_size=200))
def test_the_effects_that_a_task_returns_are_bounded(streams: list[tuple[int, int]]) -> None:
    """The limit applies to all streams, egresses and addresses together."""
    budget, task, taken = InlineBudget(), -1, 0
    for number, size in sorted(streams, key=lambda stream: stream[0]):
        if number != task:
            task, taken = number, 0
        fits = taken + size <= 256 * 1024

        assert budget.takes(task, size) is fits

        taken += size * fits


@given(values=st.lists(st.binary(max_size=30), min_size=1, max_size=20))
def test_effects_of_one_invocation_may_exceed_an_arrow_batch(values: list[bytes]) -> None:
    """They are divided into several batches, in order: a column of a batch ends at 2 GiB."""
    records = [EgressRecord("t", b"k", value, [("h", value)]) for value in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_effects, "PIECE_BYTES", 64)
        rows = EffectRows()
        for record in records:
            rows.append(record)
        content = arrow_stream(rows.take(), EGRESS_SCHEMA)

    batches = list(effect_streams.read_batches(io.BytesIO(content)))
    assert [*effect_streams.read_egress_records(io.BytesIO(content))] == records
    sizes = [
        sum(map(row_size, map(EgressRecord, *batch.to_pydict().values()))) for batch in batches
    ]
    assert all(size >= 64 for size in sizes[:-1])
    assert all(size < 64 + 100 for size in sizes)
    assert (len(rows), rows.size) == (0, 0)
