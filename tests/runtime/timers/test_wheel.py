# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import CheckpointError, FunctionError, Retry, message_builder
from statefun.module.policies import Policies
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.dispatch.delays import send_at, without_cancelled
from statefun.runtime.dispatch.failures import FailedMessage, Failures
from statefun.runtime.dispatch.groups import Row
from statefun.runtime.rows.effects import Effects
from statefun.runtime.timers.clock import SystemClock
from statefun.runtime.timers.wheel import (
    LATEST,
    PendingBuckets,
    TimerLog,
    bucket_for,
    date_of,
    due_tick,
    tick_of,
    time_of,
    timer_buckets,
)
from statefun.sdk.context import Cancellation, DelayedMessage

times = st.integers(0, 2**53)
buckets = st.sets(st.integers(0, 2**53), max_size=30)


@given(due=times, target=st.binary())
def test_a_timer_is_never_early(due: int, target: bytes) -> None:
    """The tick of its bucket comes when it is due or less than a tick later, and not before."""
    tick = due_tick(bucket_for(due, target))

    assert time_of(tick) >= due
    assert time_of(tick) - due < time_of(1)
    assert tick_of(time_of(tick)) == tick
    assert tick_of(time_of(tick) - 1) < tick


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

    send_at(due, Row(b"x", b"y", "t/v", b""), effects)

    [bucket] = effects.buckets
    assert date_of(due_tick(bucket)).year == 9999
    assert date_of(due // time_of(1)) == date_of(due_tick(bucket))


def test_a_last_attempt_may_wait_until_the_end_of_time() -> None:
    """However often the longest of backoffs is doubled."""
    effects = Effects()
    failed = FailedMessage(b"x", b"y", "t/v", b"", None, FunctionError("bad"), "Error", 90)

    Failures(Policies(), SystemClock()).handle(failed, Retry(100, timedelta.max), effects)

    assert [date_of(due_tick(bucket)).year for bucket in effects.buckets] == [9999]


def test_a_million_timers_of_a_tick_are_several_states() -> None:
    """No single state has to hold them all."""
    assert len({bucket_for(1000, b"%d" % number) for number in range(1000)}) == 8


@given(st.lists(st.tuples(st.sampled_from(["add", "drop"]), buckets, st.integers(0, 2**51))))
def test_pending_buckets_are_a_set_in_order_of_time(
    steps: list[tuple[str, set[int], int]],
) -> None:
    """After any additions and removals, they equal a plain set."""
    pending, model = PendingBuckets(), set[int]()
    for step, some, tick in steps:
        if step == "add":
            pending.add(some)
            model |= some
        else:
            pending.drop(tick)
            model = {bucket for bucket in model if due_tick(bucket) > tick}
        assert set(pending.all()) == model
        assert len(pending) == len(model)
        assert pending.next_tick() == min(map(due_tick, model), default=None)
        assert pending.due(tick) == sorted(b for b in model if due_tick(b) <= tick)


@given(st.lists(buckets, max_size=5))
def test_the_buckets_of_a_batch_are_those_of_its_segments(segments: list[set[int]]) -> None:
    """Each task writes down its own."""
    manifest = Manifest(segments=[Segment(buckets=sorted(some)) for some in segments])

    assert timer_buckets(Manifest.FromString(manifest.SerializeToString())) == set().union(
        *segments
    )


def test_the_log_outlives_its_writer(checkpoint: Path) -> None:
    """Whoever loads it knows all that was added, before and after snapshots."""
    folder = Folder.at(checkpoint)
    writer, pending = TimerLog(folder), PendingBuckets()
    assert len(writer.load()) == 0

    for batch in range(250):
        if batch == 120:
            writer = TimerLog(folder)
            pending = writer.load()
        if batch == 180:
            pending.drop(due_tick(800))
        added = {8 * batch, 8 * batch + 1}
        pending.add(added)
        writer.add(batch, added, pending)
        assert set(pending.all()) <= set(TimerLog(folder).load().all())

    # The snapshot after the 180th batch omits dropped buckets.
    assert min(TimerLog(folder).load().all()) > 800
    assert len(folder.child("timers").names()) < 110


def test_a_reader_gets_over_files_that_a_snapshot_replaces(checkpoint: Path) -> None:
    """It lists the folder before the snapshot and reads after it."""
    folder = Folder.at(checkpoint)
    writer, pending = TimerLog(folder), PendingBuckets()
    pending.add({7})
    writer.add(0, {7}, pending)

    class Late(Folder):
        """Lets the file go once, between listing and reading."""

        def child(self, name: str) -> Folder:
            return Late(f"{self.location}/{name}")

        def names(self) -> list[str]:
            found = super().names()
            if "0" in found:
                write_framed(folder, "timers/1.all", read_framed(folder, "timers/0"))
                self.remove("0")
            return found

    assert set(TimerLog(Late.at(checkpoint)).load().all()) == {7}


def test_a_damaged_log_is_an_error(checkpoint: Path) -> None:
    """The file is named, and no timer goes missing silently."""
    folder = Folder.at(checkpoint)
    folder.child("timers").write("3", b"\xff")

    with pytest.raises(CheckpointError, match=r"timers/3 is damaged"):
        TimerLog(folder).load()


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
    """For any messages pending before, the rest has the same outcome, and is never longer."""
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
