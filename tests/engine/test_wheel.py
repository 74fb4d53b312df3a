# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import FunctionError, Retry, StatefulFunctions, message_builder
from statefun.engine.clock import SystemClock
from statefun.engine.delays import Due, send_at, without_cancelled
from statefun.engine.effects import Effects
from statefun.engine.failures import FailedMessage, FailureCounts, Failures
from statefun.engine.policies import Policies
from statefun.engine.renamed import PresentNames
from statefun.engine.row import Row
from statefun.engine.wheel import (
    EVENT_TICKS,
    LATEST,
    PendingBuckets,
    bucket_before,
    bucket_for,
    chunk_of,
    date_of,
    due_tick,
    event_bucket,
    event_due,
    event_tick_of,
    is_of_event_time,
    rounded_up,
    tick_of,
    time_of,
)
from statefun.protocol.runtime_pb2 import Bucket
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream
from statefun.sdk.event_fields import EARLIEST_TIME
from statefun.sdk.sent import Cancellation, DelayedMessage

times = st.integers(0, 2**53)
buckets = st.sets(st.integers(0, 2**43), max_size=30)


@given(due=times, target=st.binary())
def test_a_timer_is_never_early(due: int, target: bytes) -> None:
    """The tick of its bucket comes at the due time, or less than a tick later."""
    tick = due_tick(bucket_for(due, target))

    assert time_of(tick) >= due
    assert time_of(tick) - due < time_of(1)
    assert tick_of(time_of(tick)) == tick
    assert tick_of(time_of(tick) - 1) < tick


@given(due=times, now=times, target=st.binary())
def test_a_message_is_passed_on_before_it_is_due(due: int, now: int, target: bytes) -> None:
    """The tick of a coarse bucket comes later than now, and somewhat before the due time."""
    tick = due_tick(bucket_before(due, now, target))

    if tick != due_tick(bucket_for(due, target)):
        assert now < time_of(tick) < due
        assert 64 * (due - time_of(tick)) < due - now


@given(due=times, now=times)
def test_a_wake_up_is_late_by_a_share_of_its_wait(due: int, now: int) -> None:
    """A wake-up is never early."""
    late = rounded_up(due, now) - due

    assert 0 <= late < max(time_of(1), (due - now) / 256 + time_of(1))


@pytest.mark.parametrize("place", [bucket_before, lambda due, now, _: rounded_up(due, now)])
@given(wait=st.integers(0, 30 * 365 * 86_400_000), now=st.integers(0, 2**50))
def test_messages_share_buckets_however_long_they_wait(
    place: Callable[[int, int, bytes], int], wait: int, now: int
) -> None:
    """Messages with waits of about the same length use few more than 500 ticks."""
    dues = range(now + wait, now + 2 * wait, max(1, wait // 5000))

    assert len({place(due, now, b"") for due in dues}) <= 520


@given(due=times, target=st.binary(), others=st.lists(st.binary()))
def test_what_shares_a_tick_is_spread_by_target(
    due: int, target: bytes, others: list[bytes]
) -> None:
    """Messages to one target share a bucket, so that they stay in order."""
    assert bucket_for(due, target) == bucket_for(due, bytes(target))
    assert {due_tick(bucket_for(due, other)) for other in others} <= {
        due_tick(bucket_for(due, target))
    }


@given(due=st.integers(LATEST, 10**30))
def test_timers_at_the_end_of_time_have_a_date(due: int) -> None:
    """A message that is due after the last date waits for the last date."""
    effects = Effects()

    send_at(Due(due, due, 1), Row(b"x", b"y", "t/v", b""), effects)

    [bucket] = effects.buckets
    assert date_of(due_tick(bucket)).year == 9999
    assert date_of(min(due // time_of(1), EVENT_TICKS - 1)) == date_of(due_tick(bucket))


def test_a_last_attempt_may_wait_until_the_end_of_time() -> None:
    """The longest backoff may be doubled any number of times."""
    effects = Effects()
    failed = FailedMessage(b"x", b"y", "t/v", b"", None, FunctionError("bad"), "Error", 90)

    names = PresentNames(StatefulFunctions())
    Failures(Policies(), SystemClock(), count(1), FailureCounts(), names).handle(
        failed, Retry(100, timedelta.max), effects
    )

    [bucket] = effects.buckets
    assert date_of(due_tick(bucket)).year <= 9999
    [batch] = pa.ipc.open_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA))
    [message] = Bucket.FromString(batch["value"][0].as_py()).messages
    assert message.due == LATEST


@given(wait=st.integers(0, 2**45), now=st.integers(0, 2**50), late=st.integers(0, 2**40))
def test_a_message_reaches_its_final_bucket_in_a_few_steps(wait: int, now: int, late: int) -> None:
    """Each bucket sends it to a finer one, whenever the tick comes, until the message is due."""
    due, steps = now + wait, 0
    while time_of(tick := due_tick(bucket_before(due, now, b""))) < due:
        now = time_of(tick) + late
        steps += 1
        late = 0
    assert tick <= due_tick(bucket_for(due, b""))
    assert steps <= 6


def test_a_million_timers_of_a_tick_are_several_states() -> None:
    """No single state has to hold all of them."""
    assert len({bucket_for(1000, b"%d" % number) for number in range(1000)}) == 8


@given(due=st.integers(EARLIEST_TIME, LATEST), now=st.integers(EARLIEST_TIME, LATEST))
def test_event_time_has_ticks_of_its_own(due: int, now: int) -> None:
    """The bucket of a message opens when the watermark has come to its time at the earliest, or passes it on before."""
    time = event_due(due)
    bucket = event_bucket(time, now, b"Ada")
    tick = due_tick(bucket)

    assert is_of_event_time(tick)
    assert bucket < chunk_of(0, 0)
    assert time_of(event_tick_of(time)) == time
    assert min(now, time) < time_of(tick) <= time or time_of(tick) == time


def test_ticks_of_one_domain_leave_the_other_alone() -> None:
    """Neither the clock opens buckets of event time, nor the watermark those of the clock."""
    pending = PendingBuckets()
    clock, event = bucket_for(1000, b"Ada"), event_bucket(1000, 1000, b"Ada")
    pending.add({clock, event})

    assert pending.due(tick_of(LATEST)) == [clock]
    assert pending.due(event_tick_of(LATEST)) == [event]
    pending.drop(tick_of(LATEST))
    assert pending.all() == [event]
    assert (pending.next_tick(), pending.next_tick(of_event_time=True)) == (None, due_tick(event))


chunked = st.sets(st.builds(chunk_of, st.integers(0, 2**43), st.integers(-1, 5)), max_size=30)


@given(st.lists(st.tuples(st.sampled_from(["add", "drop"]), chunked, st.integers(0, 2**41))))
def test_pending_buckets_are_a_set_in_order_of_time(
    steps: list[tuple[str, set[int], int]],
) -> None:
    """After any additions and removals, they equal a plain set; a chunk includes all earlier chunks."""
    pending, model = PendingBuckets(), set[int]()
    for step, some, tick in steps:
        if step == "add":
            pending.add(some)
            model |= {each for bucket in some for each in with_chunks_before(bucket)}
        else:
            pending.drop(tick)
            model = {bucket for bucket in model if due_tick(bucket) > tick}
        assert {each for last in pending.all() for each in with_chunks_before(last)} == model
        assert all(bucket in pending for bucket in model)
        assert all((bucket in pending) == (bucket in model) for bucket in some)
        assert len(pending) == len({bucket % chunk_of(0, 0) for bucket in model})
        assert pending.next_tick() == min(map(due_tick, model), default=None)
        assert pending.due(tick) == sorted(b for b in model if due_tick(b) <= tick)


def with_chunks_before(bucket: int) -> set[int]:
    """Return a bucket or chunk, its bucket, and the chunks before it."""
    return set(range(bucket % chunk_of(0, 0), bucket + 1, chunk_of(0, 0)))


commands = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=9)


def outcome(
    delayed: Iterable[DelayedMessage | Cancellation], live: dict[str, int]
) -> dict[str, int] | None:
    """Return the delayed messages at the end, by token; None if a token in use was used again."""
    live = dict(live)
    for each in delayed:
        if isinstance(each, Cancellation):
            live.pop(each.cancellation_token, None)
        elif each.cancellation_token in live:
            return None
        else:
            live[each.cancellation_token] = each.message.as_int()
    return live


@given(commands=commands, before=st.sets(st.sampled_from("ab")))
def test_what_is_cancelled_at_once_makes_no_difference(
    commands: list[tuple[str, bool]], before: set[str]
) -> None:
    """With any older messages, the reduced list has the same outcome, and is never longer."""
    delayed = [
        DelayedMessage(timedelta(1), message_builder("t/f", "x", int_value=number), token)
        if sends
        else Cancellation(token)
        for number, (token, sends) in enumerate(commands)
    ]
    left = without_cancelled(delayed)

    live = dict.fromkeys(before, -1)
    assert outcome(left, live) == outcome(delayed, live)
    assert len(left) <= len(delayed)
