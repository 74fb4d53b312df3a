# SPDX-License-Identifier: Apache-2.0
"""What has come to windows, joins and table, and how each message must have come there."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from event_time_model.functions import LATER
from event_time_model.observing import EPOCH_START, Committed, Trace
from event_time_model.programs import Program, Step
from statefun.engine.address_keys import address_of
from statefun.testing.message_rows import MessageRow

TICK = 250
"""The due times of messages are rounded up to it, in milliseconds."""
_TARGETS = {
    "count": ["windows"],
    "left": ["pairs", "prices", "table"],
    "right": ["pairs", "prices"],
    "row": ["table"],
    "gone": ["table"],
}


class Arrival(NamedTuple):
    """A message that was delivered to windows, a join or the table, in the order of delivery."""

    key: str
    role: str
    """The role of its record; ``wake-up`` for a wake-up."""
    number: int
    """The number of its record; -1 for a wake-up."""
    time: int
    """The event time that it must have, in milliseconds since the start."""
    watermark: int
    """The watermark of its micro-batch; a very small number if there was none."""


class Arrivals(NamedTuple):
    """Everything that was delivered."""

    of: Mapping[str, list[Arrival]]
    """By ``windows``, ``pairs``, ``prices`` and ``table``."""
    differences: list[str]


def rounded(time: int, unit: int = TICK) -> int:
    """Return a time rounded up."""
    return -(-time // unit) * unit


def event_time_of(step: Step) -> int:
    """Return the event time with which the message of a record comes to its function."""
    time = step.time
    for hop in step.hops:
        if hop == "later":
            time = rounded(time + LATER)
    return time


def arrivals(program: Program, trace: Trace) -> Arrivals:
    """Return what was delivered to the functions of a program."""
    found: defaultdict[str, list[Arrival]] = defaultdict(list)
    wrong: list[str] = []
    first: dict[int, int] = {}
    """The watermark with which each record was delivered first."""
    steps = {(each.topic, each.partition, offset): each for each, offset in _offsets(program)}
    offsets: dict[tuple[bytes, str, int], int] = {}
    for event in trace.events:
        if not isinstance(event, Committed):
            continue
        watermark = -1 << 60 if event.watermark is None else event.watermark - EPOCH_START
        for target, rows in event.groups:
            address = address_of(target)
            for row in rows:
                if row.record is not None:
                    place = target, row.record.topic, row.record.partition
                    step = steps[row.record.topic, row.record.partition, row.record.offset]
                    first.setdefault(step.number, watermark)
                    if row.record.offset <= offsets.get(place, -1):
                        wrong.append(f"records came to {address} in another order")
                    offsets[place] = row.record.offset
                if address.namespace != "test" or address.name in {"relay", "slow"}:
                    continue
                arrival = _arrival(program, address.id, row, steps, watermark)
                found[address.name].append(arrival)
                if arrival.role != "wake-up":
                    wrong += _times(program, arrival, row, first)
    return Arrivals(found, [*wrong, *_counts(program, found, trace)])


def _offsets(program: Program) -> Iterator[tuple[Step, int]]:
    counts = Counter[tuple[str, int]]()
    for step in program.steps:
        place = step.topic, step.partition
        yield step, counts[place]
        counts[place] += 1


def _arrival(
    program: Program,
    key: str,
    row: MessageRow,
    steps: Mapping[tuple[str, int, int], Step],
    watermark: int,
) -> Arrival:
    if row.record is not None:
        step = steps[row.record.topic, row.record.partition, row.record.offset]
        return Arrival(key, step.role, step.number, step.time, watermark)
    if row.typename.endswith("wake-up"):
        return Arrival(key, "wake-up", -1, 0, watermark)
    number = json.loads(row.value or b"")["number"]
    step = program.steps[number]
    return Arrival(key, step.role, number, event_time_of(step), watermark)


def _times(
    program: Program, arrival: Arrival, row: MessageRow, first: Mapping[int, int]
) -> Iterator[str]:
    """Yield what is wrong with the event time of a message, or with the watermark when it comes."""
    step = program.steps[arrival.number]
    time: Any = row.cell("event_time") - EPOCH_START
    if time != arrival.time:
        yield f"the message of record {step.number} has the time {time}, not {arrival.time}"
    if "later" in step.hops and arrival.watermark < arrival.time:
        yield f"record {step.number} came at {arrival.watermark}, before it was due at {arrival.time}"
    is_held = not step.is_delayed and first[step.number] <= step.time
    if is_held and arrival.watermark > step.time:
        yield f"the watermark {arrival.watermark} has passed record {step.number} of {step.time} under way"


def _counts(program: Program, found: Mapping[str, list[Arrival]], trace: Trace) -> Iterator[str]:
    """Yield what has not come exactly once; what waits for a later watermark has not come."""
    end = -1 << 60 if trace.watermark is None else trace.watermark - EPOCH_START
    came = Counter(
        (name, each.number)
        for name, those in found.items()
        for each in those
        if each.role != "wake-up"
    )
    expected = Counter(
        (name, step.number)
        for step in program.steps
        if "later" not in step.hops or event_time_of(step) <= end
        for name in _TARGETS[step.role]
    )
    if came != expected:
        yield f"not delivered: {expected - came}; delivered too often: {came - expected}"
