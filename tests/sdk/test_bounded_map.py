# SPDX-License-Identifier: Apache-2.0
"""Maps that drop the entries that were used longest ago."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.bounded_map import BoundedMap

MOST = 3
KEYS = st.integers(0, 9)


@given(st.lists(st.tuples(st.booleans(), KEYS)), st.integers(2, 5))
def test_the_entries_that_were_used_last_are_there(uses: list[tuple[bool, int]], most: int) -> None:
    """If none is needed, those are all that are there."""
    entries, model = BoundedMap[int, str](most=most), OrderedDict[int, str]()
    for is_set, key in uses:
        if is_set:
            entries[key] = model[key] = str(key)
        assert entries.get(key) == model.get(key)
        if key in model:
            model.move_to_end(key)
        while len(model) > most:
            model.popitem(last=False)

    assert [key for key in range(10) if entries.get(key)] == sorted(model)


@given(st.lists(st.tuples(st.sampled_from(["use", "need", "need", "leave"]), KEYS)))
def test_what_is_needed_stays_until_it_is_not(steps: list[tuple[str, int]]) -> None:
    """Also if more is needed than the map should have; it becomes as small again by as many new entries."""
    needed: set[int] = set()
    entries = BoundedMap[int, int](needed.__contains__, MOST)
    for step, key in steps:
        if entries.get(key) is None:
            assert key not in needed
            entries[key] = key
        (needed.discard if step == "leave" else needed.add if step == "need" else id)(key)

    assert all(entries.get(key) == key for key in needed)
    needed.clear()
    for key in range(10, 30):
        entries[key] = key
    assert [key for key in range(30) if entries.get(key) is not None] == [27, 28, 29]
