# SPDX-License-Identifier: Apache-2.0
"""What joins and the table must find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from event_time_model.arrivals import Arrival, Arrivals, rounded
from event_time_model.observing import EPOCH_START, Trace
from event_time_model.programs import Program

_SECOND = 1000
_NEVER = -1 << 60


def _by_key(arrivals: Sequence[Arrival]) -> Mapping[str, list[Arrival]]:
    found: defaultdict[str, list[Arrival]] = defaultdict(list)
    for each in arrivals:
        found[each.key].append(each)
    return found


def _noted(trace: Trace, what: str) -> list[tuple[Any, ...]]:
    """Return what functions have noted: the key, the watermark and more."""
    return [tuple(each[1:]) for each in trace.journal if each[0] == what]


def _pairs(program: Program, arrivals: Sequence[Arrival], trace: Trace) -> Iterator[str]:
    """Compare the pairs of two streams, and the records without a partner."""
    end = _NEVER if trace.watermark is None else trace.watermark - EPOCH_START
    pairs: list[Any] = []
    alone: dict[tuple[str, int], int] = {}
    for key, own in _by_key(arrivals).items():
        in_time = [each for each in own if each.watermark <= each.time + program.grace]
        lefts, rights = ([each for each in in_time if each.role == s] for s in ("left", "right"))
        matched = set[int]()
        for left in lefts:
            for right in rights:
                if left.time - program.before <= right.time <= left.time + program.after:
                    pairs.append((key, left.number, right.number))
                    matched |= {left.number, right.number}
        for each in [*lefts, *rights]:
            later = program.after if each.role == "left" else program.before
            due = rounded(each.time + later + program.grace + 1, _SECOND)
            if each.number not in matched and due <= end:
                alone[key, each.number] = due
    found = sorted((key, left, right) for key, _, left, right in _noted(trace, "pair"))
    if found != sorted(pairs):
        yield f"the pairs are {found}, not {sorted(pairs)}"
    came = sorted((key, number, at) for key, at, number in _noted(trace, "alone"))
    if came != (expected := sorted((*each, due) for each, due in alone.items())):
        yield f"alone are {came}, not {expected}"


def _as_of(program: Program, arrivals: Sequence[Arrival], trace: Trace) -> Iterator[str]:
    """Compare the records that were valid at the time of others."""
    end = _NEVER if trace.watermark is None else trace.watermark - EPOCH_START
    expected: list[Any] = []
    for key, own in _by_key(arrivals).items():
        in_time = [each for each in own if each.watermark <= each.time + program.grace]
        rights = [
            (each.time, place, each.number)
            for place, each in enumerate(in_time)
            if each.role == "right"
        ]
        for left in (each for each in in_time if each.role == "left"):
            valid = [each for each in rights if left.time - program.within <= each[0] <= left.time]
            due = rounded(left.time + program.grace + 1, _SECOND)
            if due <= end:
                expected.append((key, due, left.number, max(valid)[2] if valid else None))
    found = sorted(_noted(trace, "price"), key=repr)
    if found != sorted(expected, key=repr):
        yield f"as of a time are {found}, not {sorted(expected, key=repr)}"


def _late(program: Program, arrivals: Arrivals, trace: Trace) -> Iterator[str]:
    late = [
        (name, each.number)
        for name in ("pairs", "prices")
        for each in arrivals.of.get(name, ())
        if each.role != "wake-up" and each.watermark > each.time + program.grace
    ]
    if len(late) != trace.skipped:
        yield f"{trace.skipped} records are late for joins, not {late}"
    if program.is_orderly and late:
        yield f"in a program in order, records are late: {late}"


def _table(arrivals: Sequence[Arrival], trace: Trace) -> Iterator[str]:
    """Compare the rows that were found, and the changes of the table, with those that have come before."""
    for key, own in _by_key(arrivals).items():
        row: int | None = None
        expected: list[Any] = []
        for each in own:
            if each.role == "left":
                expected.append(["seen", each.number, row])
            else:
                row = each.number if each.role == "row" else None
                expected.append(["row", row])
        found = [
            [what, *details]
            for what, id_, _, *details in trace.journal
            if id_ == key and what in {"seen", "row"}
        ]
        if found != expected:
            yield f"the table has had, for {key}, {found}, not {expected}"


def join_differences(program: Program, arrivals: Arrivals, trace: Trace) -> Iterator[str]:
    """Yield what joins and table have done wrong."""
    yield from _pairs(program, arrivals.of.get("pairs", []), trace)
    yield from _as_of(program, arrivals.of.get("prices", []), trace)
    yield from _late(program, arrivals, trace)
    yield from _table(arrivals.of.get("table", []), trace)
