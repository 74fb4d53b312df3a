# SPDX-License-Identifier: Apache-2.0
"""The watermark: what moves it, what holds it, and that it never falls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from statefun.engine.watermark import EventProgress, Partition, Situation, next_progress
from statefun.module.event_time import EventTime
from statefun.protocol.runtime_pb2 import EventTimes
from statefun.sdk.event_fields import EARLIEST_TIME
from statefun.sdk.times import from_epoch_millis

IN = "com.example/in"
SETTINGS = EventTime(out_of_order=timedelta(milliseconds=10), idle=timedelta(seconds=1))
A, B, C = (Partition(IN, "clicks", number) for number in range(3))
HOLD = 600_000


def found(
    newest: Mapping[Partition, int] | None = None,
    sent: int | None = None,
    waiting: Mapping[int, int] | None = None,
) -> EventTimes:
    """Return what a micro-batch has found."""
    facts = EventTimes(waiting=waiting or {})
    for each, time in (newest or {}).items():
        facts.newest.add(ingress=each.ingress, topic=each.topic, partition=each.number, time=time)
    if sent is not None:
        facts.sent.time, facts.sent.target = sent, b"Ada\0com.example/f"
    return facts


def step(
    before: EventProgress,
    *facts: EventTimes,
    partitions: tuple[Partition, ...] = (A, B),
    caught_up: Mapping[Partition, int] | None = None,
    now: int = 0,
    settings: EventTime = SETTINGS,
) -> EventProgress:
    """Return the progress after micro-batches."""
    situation = Situation(partitions, caught_up or {}, now)
    return next_progress(before, facts, {IN: settings}, situation)


def test_the_slowest_partition_decides() -> None:
    """The watermark is the least of all partitions' newest times, less the disorder that is allowed."""
    progress = step(EventProgress(), found({A: 100, B: 70}))

    assert progress.watermark == 60
    assert progress.holder is not None
    assert progress.holder[:2] == ("partition", "clicks/1")


def test_a_partition_without_records_in_a_batch_keeps_its_value() -> None:
    """A micro-batch without records of a partition changes nothing for it."""
    progress = step(EventProgress(), found({A: 100, B: 70}))

    progress = step(progress, found({A: 200}))

    assert progress.watermark == 60


def test_an_older_record_does_not_lower_a_partition() -> None:
    """The newest record of a partition counts, whatever comes after it."""
    progress = step(EventProgress(), found({A: 100, B: 100}))

    progress = step(progress, found({A: 20, B: 110}))

    assert progress.watermark == 90
    assert progress.newest[A] == 100


def test_an_unread_partition_holds_until_it_is_idle() -> None:
    """Without any record, a partition keeps the first watermark from being set, until it is empty for ``idle``."""
    progress = step(EventProgress(), found({A: 100}))
    waiting = step(progress, caught_up={B: 999})
    idle = step(waiting, caught_up={B: 1000})

    assert (progress.watermark, waiting.watermark, idle.watermark) == (None, None, 90)
    assert waiting.holder is not None
    assert waiting.holder[:2] == ("unread", "clicks/1")
    assert idle.idle == {B}


def test_a_new_partition_joins_at_the_watermark() -> None:
    """A partition that appears later neither holds the watermark below its value, nor is left out."""
    progress = step(EventProgress(), found({A: 100, B: 100}))

    joined = step(progress, found({A: 200, B: 200}), partitions=(A, B, C))
    moved = step(joined, found({C: 150}), partitions=(A, B, C))

    assert joined.watermark == 90
    assert moved.watermark == 140


def test_an_empty_partition_of_a_bounded_run_is_idle_at_once() -> None:
    """It has nothing that the run could read; a partition with records is not idle before its time."""
    situation = Situation((A, B, C), {B: 0, C: 0}, is_bounded=True)
    facts = [found({A: 100, B: 60})]

    progress = next_progress(EventProgress(), facts, {IN: SETTINGS}, situation)

    assert progress.watermark == 50
    assert progress.idle == {C}


def test_a_removed_partition_holds_nothing() -> None:
    """A partition that is not read any more does not keep the watermark."""
    progress = step(EventProgress(), found({A: 200, B: 100}))

    assert step(progress, partitions=(A,)).watermark == 190


def test_a_removed_partition_is_forgotten() -> None:
    """Topics may come and go for years: each offset has only the partitions that are read."""
    progress = step(EventProgress(), found({A: 200, B: 100}))

    removed = step(progress, partitions=(A,))
    back = step(removed, found({B: 150}))

    assert removed.newest == {A: 200}
    assert back.watermark == 190, "it never falls"
    assert back.newest == {A: 200, B: 150}


def test_a_partition_that_returns_from_idleness_does_not_lower_the_watermark() -> None:
    """Old records of a partition that was idle are late; the watermark waits for them to come up to it."""
    progress = step(EventProgress(), found({A: 300, B: 100}), caught_up={B: 5000})
    back = step(progress, found({A: 400, B: 120}))
    ahead = step(back, found({B: 380}))

    assert (progress.watermark, back.watermark, ahead.watermark) == (290, 290, 370)


def test_a_message_holds_until_it_is_delivered() -> None:
    """A message that a committed micro-batch has sent holds the watermark for the micro-batch that delivers it."""
    held = step(EventProgress(), found({A: 100, B: 100}, sent=50))
    free = step(held, found({A: 101}))

    assert held.watermark == 50
    assert held.holder is not None
    assert held.holder[:2] == ("message", "com.example/f/Ada")
    assert free.watermark == 90


def test_waiting_messages_hold_until_the_last_address_has_none() -> None:
    """Each address with waiting messages is counted, so that the watermark waits for all of them."""
    held = step(EventProgress(), found({A: 100, B: 100}, waiting={40: 2}))
    one = step(held, found(waiting={40: -1}))
    none = step(one, found(waiting={40: -1}))

    assert (held.watermark, one.watermark, none.watermark) == (40, 40, 90)
    assert one.holder is not None
    assert one.holder.kind == "waiting"


def test_all_idle_partitions_hold_or_follow_the_clock() -> None:
    """If all partitions are idle, the watermark stays at the newest one; or it rises with the clock."""
    follow = EventTime(SETTINGS.field, SETTINGS.out_of_order, SETTINGS.idle, follows=True)
    progress = step(EventProgress(), found({A: 100, B: 70}))

    holding = step(progress, caught_up={A: 5000, B: 7000})
    following = step(progress, caught_up={A: 5000, B: 7000}, settings=follow)
    busy = step(progress, caught_up={A: 5000}, settings=follow)

    assert holding.watermark == 90
    assert following.watermark == 90 + 5000
    assert busy.watermark == 60


def test_a_message_that_holds_for_too_long_is_passed_by() -> None:
    """A ping-pong keeps the watermark for ``maxHold`` only; then it is counted, and the watermark rises by a step."""
    still = step(EventProgress(), found({A: 100, B: 100}, sent=50), now=1000)
    for time in range(1000, 1000 + HOLD, 10_000):
        still = step(still, found(sent=50), now=time)
    passed = step(still, found(sent=50), now=1000 + HOLD)
    free = step(passed, found(), now=1000 + HOLD)

    assert (still.watermark, still.released) == (50, 0)
    assert (passed.watermark, passed.released) == (51, 1)
    assert free.watermark == 90


def test_a_message_is_not_passed_by_after_an_outage_of_the_application() -> None:
    """It could not be delivered meanwhile, so that this time does not count."""
    progress = step(EventProgress(), found({A: 100, B: 100}, sent=50), now=1000)

    later = step(progress, found(sent=50), now=1000 + 10 * HOLD)

    assert (later.watermark, later.released) == (50, 0)


def test_the_watermark_is_a_date() -> None:
    """The disorder that is allowed is taken off the first possible time, too."""
    progress = step(EventProgress(), found({A: EARLIEST_TIME, B: EARLIEST_TIME}))

    assert progress.watermark == EARLIEST_TIME
    assert from_epoch_millis(EARLIEST_TIME).year == 2


def test_waiting_messages_are_never_passed_by() -> None:
    """An outage of an endpoint holds the watermark for as long as it lasts: its messages must not become late."""
    progress = step(EventProgress(), found({A: 100, B: 100}, waiting={40: 1}))

    assert step(progress, now=100 * HOLD).watermark == 40
    # Nor together with a message of the same time that goes in a circle.
    circle = step(progress, found(sent=40), now=0)
    assert step(circle, found(sent=40), now=100 * HOLD).watermark == 40


_times = st.integers(0, 1000)
_facts = st.builds(
    found,
    st.dictionaries(st.sampled_from([A, B, C]), _times),
    st.none() | _times,
    st.dictionaries(_times, st.integers(-1, 2)),
)
_steps = st.lists(
    st.tuples(
        st.lists(_facts, max_size=3),
        st.sets(st.sampled_from([A, B, C])),
        st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 2000)),
        st.integers(0, 2 * HOLD),
    ),
    max_size=12,
)


@given(_steps)
def test_the_watermark_never_falls_and_never_passes_a_message(
    steps: list[tuple[list[EventTimes], set[Partition], dict[Partition, int], int]],
) -> None:
    """Whatever micro-batches find, the watermark never falls; and it passes no message but for ``maxHold``."""
    progress = EventProgress()
    for facts, partitions, caught_up, now in steps:
        known = tuple(sorted(partitions))
        ended = {each: time for each, time in caught_up.items() if each in partitions}
        after = step(progress, *facts, partitions=known, caught_up=ended, now=now)
        low = progress.watermark
        if after.watermark is None:
            assert low is None
        else:
            assert low is None or after.watermark >= low
            held = [each.sent.time for each in facts if each.HasField("sent")]
            held += list(after.waiting)
            if low is not None and held and after.released == progress.released:
                assert after.watermark <= max(low, min(held))
        assert EventProgress.decode(json.loads(json.dumps(after.encode()))) == after
        progress = after
