# SPDX-License-Identifier: Apache-2.0
"""What windows must hold, and which records are late for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from event_time_model.arrivals import TICK, Arrival, rounded
from event_time_model.observing import EPOCH_START, Trace
from event_time_model.programs import Program
from statefun.windows import Counted, Hopping, Session, Sliding, Tumbling
from statefun.windows.window_kinds import WindowKind

_NEVER = 1 << 60


class Closed(NamedTuple):
    """A window; times are in milliseconds since the start."""

    key: str
    start: int
    end: int
    numbers: list[int]
    """Its records."""
    closes: int
    """The watermark at which it closes; if it was full at once, a very small number."""


class Late(NamedTuple):
    """A record that is late for a window."""

    key: str
    start: int
    end: int
    number: int


def millis(duration: timedelta) -> int:
    """Return a duration in milliseconds."""
    return duration // timedelta(milliseconds=1)


def expected_windows(
    kind: WindowKind, arrivals: Sequence[Arrival]
) -> tuple[list[Closed], list[Late]]:
    """Return all windows with records, closed or not, and the late records."""
    by_key: defaultdict[str, list[Arrival]] = defaultdict(list)
    for each in arrivals:
        by_key[each.key].append(each)
    windows, late = list[Closed](), list[Late]()
    for key, own in by_key.items():
        records = [each for each in own if each.role != "wake-up"]
        if isinstance(kind, Counted):
            windows += _counted(key, kind, own)
            continue
        if isinstance(kind, Session):
            found, missed = _sessions(key, kind, own)
        elif isinstance(kind, Sliding):
            found, missed = _sliding(key, kind, records)
        else:
            found, missed = _aligned(key, kind, records)
        windows += found
        late += missed
    return windows, late


def _aligned(
    key: str, kind: Tumbling | Hopping, records: Sequence[Arrival]
) -> tuple[list[Closed], list[Late]]:
    size, grace, offset = map(millis, (kind.size, kind.grace, kind.offset))
    every = millis(kind.every) if isinstance(kind, Hopping) else size
    windows: defaultdict[int, list[int]] = defaultdict(list)
    late = list[Late]()
    for each in records:
        number = (each.time + EPOCH_START - offset) // every
        while (start := number * every + offset - EPOCH_START) + size > each.time:
            if each.watermark >= start + size + grace:
                late.append(Late(key, start, start + size, each.number))
            else:
                windows[start].append(each.number)
            number -= 1
    made = [
        Closed(key, start, start + size, sorted(numbers), start + size + grace)
        for start, numbers in windows.items()
    ]
    return made, late


def _sliding(
    key: str, kind: Sliding, records: Sequence[Arrival]
) -> tuple[list[Closed], list[Late]]:
    size, grace = millis(kind.size), millis(kind.grace)
    in_time = [each for each in records if each.watermark < each.time + 1 + grace]
    late = [
        Late(key, each.time + 1 - size, each.time + 1, each.number)
        for each in records
        if each.watermark >= each.time + 1 + grace
    ]
    made = []
    for end in {each.time + 1 for each in in_time}:
        own = [each.number for each in in_time if end - size <= each.time < end]
        made.append(Closed(key, end - size, end, sorted(own), end + grace))
    return made, late


def _sessions(
    key: str, kind: Session, arrivals: Sequence[Arrival]
) -> tuple[list[Closed], list[Late]]:
    """Join the sessions in the order in which records come; a wake-up takes those away that are over."""
    gap, grace = millis(kind.gap), millis(kind.grace)
    sessions, over, late = list[Closed](), list[Closed](), list[Late]()
    for each in arrivals:
        if each.role == "wake-up":
            over += [one for one in sessions if one.closes <= each.watermark]
            sessions = [one for one in sessions if one.closes > each.watermark]
            continue
        own = [one for one in sessions if one.start < each.time + gap and each.time < one.end]
        start = min(each.time, *(one.start for one in own)) if own else each.time
        end = max(each.time + gap, *(one.end for one in own)) if own else each.time + gap
        if each.watermark >= end + grace:
            late.append(Late(key, each.time, each.time + gap, each.number))
            continue
        numbers = sorted([each.number, *(number for one in own for number in one.numbers)])
        sessions = [one for one in sessions if one not in own]
        sessions.append(Closed(key, start, end, numbers, end + grace))
    return over + sessions, late


def _counted(key: str, kind: Counted, arrivals: Iterable[Arrival]) -> Iterator[Closed]:
    timeout = _NEVER if kind.timeout is None else millis(kind.timeout)
    own = list[Arrival]()

    def window(closes: int) -> Closed:
        times = [each.time for each in own]
        numbers = sorted(each.number for each in own)
        return Closed(key, min(times), max(times) + 1, numbers, closes)

    for each in arrivals:
        if each.role != "wake-up":
            own.append(each)
            if len(own) == kind.size:
                yield window(-2 * _NEVER)
                own = []
        elif own and own[0].time + timeout <= each.watermark:
            yield window(own[0].time + timeout)
            own = []
    if own:
        yield window(own[0].time + timeout)


def _closed_at(kind: WindowKind, closes: int) -> int:
    """Return the watermark at which a window is closed, given the one at which it may be closed."""
    if isinstance(kind, Tumbling | Hopping | Sliding):
        return rounded(closes)
    wait = kind.gap if isinstance(kind, Session) else kind.timeout
    unit = TICK
    while wait is not None and (unit + TICK) * 100 <= millis(wait):
        unit += TICK
    return rounded(closes + EPOCH_START, unit) - EPOCH_START


def window_differences(
    program: Program, arrivals: Sequence[Arrival], trace: Trace
) -> Iterator[str]:
    """Yield the windows and late records that are not as they must be."""
    windows, late = expected_windows(program.kind, arrivals)
    end = -_NEVER if trace.watermark is None else trace.watermark - EPOCH_START
    closing = {each[:3]: each.closes for each in windows}
    expected = sorted(each[:4] for each in windows if _closed_at(program.kind, each.closes) <= end)
    entries = [(key, *details, at) for what, key, at, *details in trace.journal if what == "closed"]
    found = sorted((key, start, end, numbers) for key, start, end, numbers, _ in entries)
    if found != expected:
        missing = [each for each in expected if each not in found]
        others = [each for each in found if each not in expected]
        yield f"not closed: {missing}; closed and wrong, or twice: {others or found}"
    if not isinstance(program.kind, Counted):
        for key, start, until, _, at in entries:
            closes = closing.get((key, start, until), at)
            if not closes <= at <= _closed_at(program.kind, closes):
                yield f"the window from {start} to {until} of {key} closed at {at}, not at {closes}"
    missed = sorted(
        Late(key, start, until, number)
        for what, key, _, start, until, number in (
            each for each in trace.journal if each[0] == "late"
        )
    )
    if missed != sorted(late):
        yield f"the late records are {missed}, not {sorted(late)}"
    if program.is_orderly and late:
        yield f"in a program in order, records are late: {late}"
