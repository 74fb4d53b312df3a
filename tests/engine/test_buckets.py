# SPDX-License-Identifier: Apache-2.0
"""Timer buckets whose messages arrive in several chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun import StatefulFunctions
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import DELAYED, RELEASED, TICK, run_bucket
from statefun.engine.clock import BatchClock, SystemClock
from statefun.engine.delays import messages_in, send_wake_ups
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.engine.sending import Sender
from statefun.engine.wheel import (
    BUCKET,
    bucket_key,
    bucket_of,
    chunk_of,
    due_tick,
    event_bucket,
    event_due,
    is_chunk,
    time_of,
)
from statefun.protocol.runtime_pb2 import Bucket, DelayedMessage
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream
from statefun.sdk.sent import WakeUp

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
            arrived, typenames = [*arrived, b"%d" % time_of(due_tick(NUMBER))], [*typenames, TICK]
        count = len(arrived)
        none = [None] * count
        columns = Columns(none, typenames, arrived, none, [0] * count, cell=lambda *_: None)
        yield Group(key, columns, 0, count, values, is_last)


def entry(number: int, size: int) -> bytes:
    """Return what a task sends to a bucket."""
    message = DelayedMessage(
        target=b"%d\0t/f" % (number % 3), sequence=number, value=bytes(size), due=number
    )
    return Bucket(messages=[message]).SerializeToString()


def outcome(chunks: Chunks, *, due: bool) -> tuple[list[int], list[int]]:
    """Run a bucket; return which messages it has sent, and which ones it holds then."""
    values, effects = AddressValues(None), Effects()
    so_far = []
    for group, chunk in zip(groups(chunks, values, due=due), chunks, strict=True):
        run_bucket(group, effects)
        so_far.append(sum(len(entry(*each)) for each in chunk))
        if not group.last:  # joined, each would be copied for each one behind it
            assert [len(held.value) for held in values.values.values()] == so_far
    assert set(values.values) <= {BUCKET, "chunks"}
    sent = []
    for batch in (
        pa.ipc.open_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA)) if effects else ()
    ):
        for target, typename, value in zip(
            *(batch[name].to_pylist() for name in ("target", "typename", "value")), strict=True
        ):
            if typename == RELEASED:
                sent.append(DelayedMessage.FromString(value).sequence)
            else:
                assert is_chunk(target)
                sent.extend(each.sequence for each in Bucket.FromString(value).messages)
    held = values.values.get(BUCKET)
    if held is None:
        return sent, []
    assert held.typename == DELAYED
    assert len(held.value) <= 8 * 1024
    return sent, [each.sequence for each in Bucket.FromString(held.value).messages]


@pytest.mark.parametrize("due", [True, False])
@given(
    sizes=st.lists(st.sampled_from([0, 10, 30_000]), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_chunks_make_no_difference(due: bool, sizes: list[int], cuts: list[int]) -> None:
    """However its rows are divided, a bucket does the same, and joins no message twice."""
    messages = list(enumerate(sizes))
    bounds = [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    chunks = [messages[a:b] for a, b in pairwise(bounds) if a < b]

    sent, held = outcome(chunks, due=due)

    assert (sent, held) == outcome([messages], due=due)
    assert [*sent, *held] == list(range(len(messages)))
    assert not (sent and held)


def run(values: AddressValues, rows: Sequence[tuple[str, bytes]], key: bytes) -> Effects:
    """Run a bucket with rows; return what it has sent."""
    effects, count = Effects(), len(rows)
    typenames, contents = zip(*rows, strict=True)
    none = [None] * count
    columns = Columns(none, typenames, contents, none, [0] * count, cell=lambda *_: None)
    run_bucket(Group(key, columns, 0, count, values), effects)
    return effects


def rows_of(effects: Effects) -> list[tuple[bytes, str, bytes]]:
    """Return what was sent: targets, types and values."""
    names = ("target", "typename", "value")
    return [
        row
        for batch in (
            pa.ipc.open_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA))
            if effects
            else ()
        )
        for row in zip(*(batch[name].to_pylist() for name in names), strict=True)
    ]


@given(st.lists(st.integers(10, 500), min_size=1, max_size=300))
def test_what_an_addition_costs_does_not_grow_with_what_waits(sizes: list[int]) -> None:
    """The state of a bucket stays small; a chunk is written once, with messages of a full bucket."""
    values, chunks = AddressValues(None), dict[bytes, list[int]]()
    for number, size in enumerate(sizes):
        effects = run(values, [(DELAYED, entry(number, size))], bucket_key(NUMBER))
        assert len(values.encoded() or b"") < 9 * 1024
        for target, typename, value in rows_of(effects):
            assert (typename, target in chunks) == (DELAYED, False)
            chunks[target] = [each.sequence for each in Bucket.FromString(value).messages]
        assert {bucket_key(bucket) for bucket in effects.buckets} <= chunks.keys()
    tick = b"%d" % time_of(due_tick(NUMBER))
    released = rows_of(run(values, [(TICK, tick)], bucket_key(NUMBER)))

    assert all(typename == RELEASED for _, typename, _ in released)
    left = [DelayedMessage.FromString(value).sequence for _, _, value in released]
    assert sorted([*left, *(n for some in chunks.values() for n in some)]) == list(
        range(len(sizes))
    )
    assert values.encoded() is None
    assert list(chunks) == [bucket_key(chunk_of(NUMBER, n)) for n in range(len(chunks))]


@given(
    dues=st.lists(st.integers(0, 40 * 86_400_000), max_size=20), tick=st.integers(0, 20 * 86_400_0)
)
def test_a_coarse_bucket_releases_what_is_due_and_passes_on_the_rest(
    dues: list[int], tick: int
) -> None:
    """Finer buckets get the rest before it is due, and are among the effects; this one keeps none."""
    now, values = time_of(tick), AddressValues(None)
    messages = [
        DelayedMessage(target=b"x\0t/f", sequence=number, due=due)
        for number, due in enumerate(dues)
    ]
    content = Bucket(messages=messages).SerializeToString()

    effects = run(values, [(DELAYED, content), (TICK, b"%d" % now)], bucket_key(NUMBER))

    released, passed_on = [], []
    for target, typename, value in rows_of(effects):
        if typename == RELEASED:
            released.append(DelayedMessage.FromString(value).due)
        else:
            assert bucket_of(target) in effects.buckets
            waits = [each.due for each in Bucket.FromString(value).messages]
            assert now < time_of(due_tick(bucket_of(target))) < min(waits) + time_of(1)
            passed_on += waits
    assert released == [due for due in dues if due <= now]
    assert sorted(passed_on) == sorted(due for due in dues if due > now)
    assert values.encoded() is None


MINUTE = 60_000
WAKE_UP = "test/wake-up"
TRACE = "traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@given(
    dues=st.lists(st.integers(1, 30 * 24 * 60).map(MINUTE.__mul__), min_size=1, max_size=20),
    step=st.sampled_from([0, MINUTE]),
)
def test_wake_ups_reach_their_addresses_at_their_times(dues: list[int], step: int) -> None:
    """Through buckets of all sizes, the watermark stops for none that is early, and passes none."""
    effects = Effects()
    for number, due in enumerate(map(event_due, dues)):
        key = b"%d\0t/f" % number
        place = event_bucket(due, 0, key, step), WakeUp(due, WAKE_UP, step)
        effects.wake_ups.setdefault(place, {})[key] = ""
    send_wake_ups(effects)
    states: dict[bytes, AddressValues] = {}
    arrived: dict[bytes, int] = {}
    now = 0
    while True:
        for target, typename, value in rows_of(effects):
            if typename == DELAYED:
                run(states.setdefault(target, AddressValues(None)), [(DELAYED, value)], target)
            else:
                assert (typename, value) == (WAKE_UP, b"")
                assert target not in arrived
                arrived[target] = now
        if not states:
            break
        now = min(time_of(due_tick(bucket_of(bucket))) for bucket in states)
        effects = Effects()
        for bucket in [each for each in states if time_of(due_tick(bucket_of(each))) == now]:
            done = run(states.pop(bucket), [(TICK, b"%d" % now)], bucket)
            for row in rows_of(done):
                effects.messages.append((row[0], None, *row[1:], None, None))

    assert arrived == {b"%d\0t/f" % number: due for number, due in enumerate(map(event_due, dues))}


def test_wake_ups_are_shown_as_messages_of_their_addresses() -> None:
    """Those of one due time and bucket share one message to the bucket, whose event time is the due time."""
    effects = Effects()
    effects.wake_ups[event_bucket(MINUTE, 0, b"x", MINUTE), WakeUp(MINUTE, WAKE_UP, MINUTE)] = {
        b"x\0t/f": "",
        b"y\0t/f": TRACE,
    }

    send_wake_ups(effects)

    [(_, typename, content)] = rows_of(effects)
    shown = [
        (each.target, each.caller, each.typename, each.due, each.event_time, each.trace)
        for each in messages_in(content)
    ]
    assert typename == DELAYED
    assert shown == [
        (key, key, WAKE_UP, MINUTE, MINUTE, trace)
        for key, trace in ((b"x\0t/f", ""), (b"y\0t/f", TRACE))
    ]
    assert not effects.wake_ups


def test_a_released_wake_up_holds_the_watermark() -> None:
    """Until it is delivered, no watermark passes its time."""
    content = Bucket()
    content.wake_ups.add(due=MINUTE, typename=WAKE_UP, targets=[b"x\0t/f", b"y\0t/f"])

    effects = run(
        AddressValues(None),
        [(DELAYED, content.SerializeToString()), (TICK, b"%d" % MINUTE)],
        bucket_key(NUMBER),
    )

    assert effects.oldest == (MINUTE, b"x\0t/f")


def test_windows_need_no_coarse_buckets() -> None:
    """The watermark stops once for each end of a window, also if the ends are an hour away."""
    due = 60 * MINUTE

    assert time_of(due_tick(event_bucket(due, 0, b"x", 5 * MINUTE))) == due
    assert time_of(due_tick(event_bucket(due, 0, b"x"))) < due
    assert time_of(due_tick(event_bucket(300 * due, 0, b"x", 5 * MINUTE))) < 300 * due


def test_wake_ups_are_delivered_in_as_small_parts_as_other_messages() -> None:
    """Each micro-batch ticks so many chunks, and a chunk has no more wake-ups than other messages."""
    effects, values = Effects(), AddressValues(None)
    keys = {b"%d\0t/f" % number: "" for number in range(5000)}
    effects.wake_ups[NUMBER, WakeUp(MINUTE, WAKE_UP, MINUTE)] = keys

    send_wake_ups(effects)
    sent = [(typename, value) for _, typename, value in rows_of(effects)]
    chunks = rows_of(run(values, sent, bucket_key(NUMBER)))

    counts = [
        sum(len(each.targets) for each in Bucket.FromString(value).wake_ups)
        for _, _, value in chunks
    ]
    assert sum(counts) == len(keys)
    assert max(counts) <= 700


def test_wake_ups_count_as_effects_before_they_are_many() -> None:
    """So the limits of a task's memory hold for them; an address has one for each time."""
    effects, clock = Effects(), BatchClock(SystemClock(), 0)
    sender = Sender(Program(StatefulFunctions(), {}), clock, iter(()))

    for number in range(3000):
        key = b"%d" % (number // 2) + b"x" * 1000
        sender.wake_up(key, WakeUp(MINUTE, WAKE_UP, MINUTE), effects)

    assert effects.size > 1_000_000
    assert effects.wake_ups_size < 1_000_000
    send_wake_ups(effects)
    contents = [Bucket.FromString(value) for _, _, value in rows_of(effects)]
    targets = [target for each in contents for one in each.wake_ups for target in one.targets]
    assert len(set(targets)) == 1500
    assert len(targets) <= 1501  # one more where the wake-ups were sent in between
