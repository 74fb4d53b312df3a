# SPDX-License-Identifier: Apache-2.0
"""The list of open windows against a plain set of windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from statefun.sdk.value_spec import value_specs
from statefun.sdk.values import Values
from statefun.windows.open_windows import OPEN_WINDOWS, OpenWindow, OpenWindows, opened
from statefun.windows.window_forms import Form

starts = st.integers(-50, 50)
sizes = st.integers(1, 20)
FORM = Form(10, 10, 0)


def values_of(*windows: OpenWindow) -> Values:
    """Return the values of an address with open windows."""
    values = Values(value_specs([OPEN_WINDOWS]), {})
    for window in windows:
        OpenWindows().add(values, window)
    return values


def stored(values: Values) -> tuple[OpenWindow, ...]:
    """Return the windows as a reader of the state sees them."""
    return values.read(OPEN_WINDOWS.name) or ()


@given(st.lists(st.tuples(starts, sizes, st.sampled_from(["add", "add", "remove", "restore"]))))
def test_the_list_is_that_of_a_model(steps: list[tuple[int, int, str]]) -> None:
    """Windows of all sizes are found, added and removed, also after changes were taken back; keys are unique."""
    values, windows = values_of(), OpenWindows()
    model: dict[tuple[int, int], OpenWindow] = {}
    before, model_before = values.changed.copy(), model.copy()
    for start, size, step in steps:
        end = start + size
        found = windows.find(values, start, end, FORM)
        assert found == model.get((start, end))
        if step == "restore":
            values.restore(before)
            model = model_before.copy()
            continue
        before, model_before = values.changed.copy(), model.copy()
        if found is None and step == "add":
            key = windows.free_key(values, start)
            window = opened(key, start, end, end, FORM)
            windows.add(values, window)
            model[start, end] = window
        elif found is not None and step == "remove":
            same_start = [each for each in model.values() if each.start == start]
            windows.remove(values, same_start)
            for each in same_start:
                del model[each.start, each.end]
        assert sorted(stored(values)) == sorted(model.values())
        assert [each.start for each in stored(values)] == sorted(
            each.start for each in stored(values)
        )
        assert len({each.key for each in model.values()}) == len(model)
        assert sorted(windows.due(values, 5, 0)) == sorted(
            each for each in model.values() if each.due <= 5
        )


@given(st.sets(st.integers(0, 30), min_size=1), starts, sizes)
def test_overlapping_windows_are_found(cuts: set[int], start: int, size: int) -> None:
    """Of windows that do not overlap each other, those with a part of the stretch are found, in their order."""
    ends = sorted(cuts)
    windows = [opened(a, a, b, b, FORM) for a, b in zip(ends[::2], ends[1::2], strict=False)]

    found = OpenWindows().overlapping(values_of(*windows), start, start + size, FORM)

    assert found == [each for each in windows if each.start < start + size and start < each.end]


def test_windows_of_two_addresses_are_not_mixed_up() -> None:
    """What is remembered of one list does not answer for another one."""
    windows = OpenWindows()
    one, other = values_of(opened(1, 1, 2, 2, FORM)), values_of(opened(1, 1, 2, 9, FORM))

    for _ in range(2):
        assert windows.find(one, 1, 2, FORM) == opened(1, 1, 2, 2, FORM)
        assert windows.find(other, 1, 2, FORM) == opened(1, 1, 2, 9, FORM)
        assert windows.find(values_of(), 1, 2, FORM) is None
