# SPDX-License-Identifier: Apache-2.0
"""Broken replacements for code that keeps a rule."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from simulation.cluster import ExactlyOnceModel
from simulation.disk import LocalPath
from statefun.engine import buckets, delays
from statefun.engine import wheel as pending
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import Clock
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.sinks import EgressRecord
from statefun.engine.wheel import PendingBuckets
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import MANIFEST, Leftovers, Outbox, Staged
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.egress.lane import Lane, LaneBatch, UncertainError
from statefun.runtime.egress.lane_set import Published
from statefun.runtime.egress.marker import Marker
from statefun.runtime.egress.tasks import LaneState, LaneTask
from statefun.runtime.ingress import feedback_tasks
from statefun.runtime.ingress.committed_messages import CommittedMessages
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_offset import FeedbackOffset
from statefun.runtime.preflight.recovery import Succession
from statefun.runtime.release.publisher import Publisher

_exactly_once_open, _exactly_once_write = ExactlyOnceModel.open, ExactlyOnceModel.write
_accepted, _lane_open, _of = Lane._accepted, Lane.open, LaneBatch.of
_forget, _recover, _check = Runs.forget_all_but, Outbox.recover, Succession.check
_batches, _latest = Outbox.batches, FeedbackReader.latest_offset
_publish, _call, _add, _drop = (
    LaneTask._publish,
    LaneTask.__call__,
    TimerLog.add,
    PendingBuckets.drop,
)
_run_token, _step = delays._run_token, Publisher._step
_next_wake_up = AddressValues.next_wake_up
_run_bucket, _move, _deal = buckets.run_bucket, buckets._move, buckets._deal
_unwrapped = feedback_tasks._unwrapped
_NOTHING = Marker(-1, 0, b"", "", "")


# Egresses


def marker_before_fence(model: ExactlyOnceModel) -> Marker | None:
    """Read the marker while another producer may still move it."""
    marker = model._broker.markers.get(model._id)
    _exactly_once_open(model)
    return marker


def same_producer_again(
    model: ExactlyOnceModel, records: Iterable[EgressRecord], marker: Marker
) -> None:
    """Ask the same producer again when an answer is missing."""
    sent = list(records)
    for _ in range(20):
        try:
            _exactly_once_write(model, sent, marker)
        except UncertainError as error:
            if str(error) == "fenced":
                raise
        else:
            return
    raise UncertainError("tried for long enough")


def marker_apart(model: ExactlyOnceModel, records: Iterable[EgressRecord], marker: Marker) -> None:
    """Commit records and marker one after the other."""
    _exactly_once_write(model, records, model._broker.markers.get(model._id, _NOTHING))
    _exactly_once_write(model, [], marker)


def forgotten_lanes(factory: Any, query_id: str, lanes: int) -> tuple[str, int]:
    """Open only the lanes in use, without the lanes of earlier runs."""
    factory.world.broker.lanes = max(factory.world.broker.lanes, lanes)
    return query_id, lanes


def anybodys_lanes(lane: Lane, marker: Marker) -> Marker:
    """Publish in lanes that another run has taken over."""
    return _accepted(lane, marker._replace(owner=lane._run))


def anybodys_records(lane: Lane, known_runs: Collection[str]) -> None:
    """Go on behind records that were published with a copy of the checkpoint."""
    _lane_open(lane, {f"{number:08x}" for number in range(5000)})


def forgotten_runs(runs: Runs, publishers: Collection[str]) -> None:
    """Keep only the present run."""
    _forget(runs, ())


def mixed_lanes(staged: Staged, egress: str, lane: int) -> LaneBatch:
    """Let a state partition have another lane in every batch."""
    lane = (lane + staged.manifest.batch) % staged.lanes
    return _of(staged, egress, lane)


def no_progress(task: LaneTask, states: Iterable[LaneState]) -> Iterator[LaneState]:
    """Begin anew with each task."""
    return _call(task, [LaneState(state.lane) for state in states])


def impatient(task: LaneTask, lane: Lane, state: LaneState, turn: Any) -> bool:
    """End when the time is over, however far the task has come; it takes a while to begin."""
    turn._end -= 11
    if turn.is_over():
        return False
    return _publish(task, lane, state, turn)


def released_early(publisher: Any) -> None:
    """Publish batches that are staged and not committed yet."""
    if publisher._uncommitted and not publisher._commit_log.has(publisher._uncommitted[0]):
        publisher._release(publisher._uncommitted[0])
    else:
        _step(publisher)


def recovers_all(outbox: Outbox, newest_commit: int) -> Leftovers:
    """Count a batch as committed that will run again."""
    return _recover(outbox, 10**6)


def recovers_nothing(outbox: Outbox, newest_commit: int) -> Leftovers:
    """Take all for published."""
    found = _recover(outbox, newest_commit)
    return Leftovers((), sorted([*found.undelivered, *found.unpublished]))


def finished_by_first(publisher: Any, egress: str, published: Published) -> None:
    """Take a batch that one egress is done with for published."""
    for released in publisher._released:
        if released.batch == published.staged.manifest.batch:
            released.egresses.clear()
            return


# Messages between functions


def batches_backwards(outbox: Outbox) -> list[int]:
    """Read the newest batch first."""
    return _batches(outbox)[::-1]


def deletes_undelivered(kept: Any, manifest: Any) -> None:
    """Delete published batches before they are delivered."""
    kept._outbox.remove(manifest.batch)


def never_first(succession: Succession, batch: int) -> bool:
    """Leave the files that an earlier attempt has staged."""
    _check(succession, batch)
    return False


# Timers


def adds_nothing(log: TimerLog, batch: int, added: Collection[int], all_: PendingBuckets) -> None:
    """Know of pending buckets in memory alone."""


def small_snapshot(log: TimerLog, batch: int, added: Collection[int], all_: PendingBuckets) -> None:
    """Take a snapshot of the latest additions only."""
    few = PendingBuckets()
    few.add(added)
    _add(log, batch, added, few)


def tick_ahead(reader: Any, start: dict[str, int]) -> dict[str, int]:
    """Let ticks come a little early."""
    clock = reader._clock

    class Ahead:
        def now(self) -> int:
            return int(clock.now()) + 500

    reader._clock = Ahead()
    try:
        return _latest(reader, start)
    finally:
        reader._clock = clock


def tick_never_back(reader: Any, start: dict[str, int]) -> dict[str, int]:
    """Keep a tick that was too early."""
    offset = _latest(reader, start)
    return {**offset, "tick": max(offset["tick"], start["tick"])}


def no_ticks_for_arrivals(
    committed: CommittedMessages, start: FeedbackOffset, end: FeedbackOffset
) -> list[int]:
    """Treat buckets behind the last tick as empty."""
    committed.look()
    due = committed._timers.due(end.tick)
    return [bucket for bucket in due if pending.due_tick(bucket) > start.tick]


def drops_too_much(buckets_: PendingBuckets, tick: int) -> None:
    """Forget buckets that are about to be due."""
    _drop(buckets_, tick + 20)


def keeps_bucket(group: Group, effects: Effects) -> None:
    """Keep released messages."""
    before = dict(group.values.values)
    _run_bucket(group, effects)
    if before and not group.values.values:
        group.values.apply(before)


def unordered(messages: pa.RecordBatch, offset: int) -> dict[str, pa.Array]:
    """Deliver timers in the order in which they are read."""
    columns = _unwrapped(messages, offset)
    del columns["timestamp"], columns["offset"]
    return columns


def forgets_chunks(key: bytes, pieces: Iterable[bytes], first: int, effects: Effects) -> int:
    """Leave the chunks of a bucket without a tick."""
    noted = set(effects.buckets)
    following = _move(key, pieces, first, effects)
    effects.buckets &= noted
    return following


def releases_all(key: bytes, pieces: Iterable[bytes], now: int, effects: Effects) -> None:
    """Take what has waited in a coarse bucket for due."""
    _deal(key, pieces, pending.LATEST, effects)


def passes_on_unnoted(key: bytes, pieces: Iterable[bytes], now: int, effects: Effects) -> None:
    """Leave the buckets without a tick that messages are passed on to."""
    noted = set(effects.buckets)
    _deal(key, pieces, now, effects)
    effects.buckets &= noted


def knows_chunks(pending_: PendingBuckets, bucket: int) -> bool:
    """Take all chunks of a bucket for known that is."""
    return bucket % pending._CHUNK in pending_._chunks


def cancels_nothing(caller: bytes, token: str, effects: Effects) -> None:
    """Leave it as it is."""


def keeps_tokens(group: Group, effects: Effects, begun: int, on_conflict: Any) -> None:
    """Keep messages that were released."""
    before = dict(group.values.values)
    _run_token(group, effects, begun, on_conflict)
    group.values.apply(before)


def knows_one_wake_up(values: AddressValues, now: int) -> int | None:
    """Forget the other wake-ups when one is sent."""
    due = _next_wake_up(values, now)
    if due is not None:
        values._wake_ups = (due,)
    return due


def never_wakes_up(_values: AddressValues, _now: int) -> None:
    """Let no address wake up."""


# Clocks


def own_clock(batch_clock: Any, clock: Clock, begun: int) -> None:
    """Let each worker have its own time."""
    batch_clock._clock, batch_clock.begun = clock, clock.now()
    batch_clock._difference = clock.now() - clock.monotonic()


def unbounded_clock(batch_clock: Any, clock: Clock, begun: int) -> None:
    """Believe that a task has waited for a day."""
    batch_clock._clock, batch_clock.begun = clock, begun
    batch_clock._difference = max(clock.now(), begun) - clock.monotonic()


# Disks


def written_unsynced(folder: LocalPath, name: str, content: bytes) -> None:
    """Write a file, and leave it to the system when it is on the disk."""
    temporary = folder / f".{name}.tmp"
    with temporary.open("wb") as file:
        file.write(content)
    temporary.replace(folder / name)
    folder.system.disk._names.pop(f"{folder.path}/{name}", None)


def removed_unsynced(outbox: Outbox, batch: int) -> None:
    """Delete a manifest and its records in whichever order the disk has it."""
    outbox.batch_folder(batch).remove(MANIFEST)
    outbox.batch_folder(batch).remove_all()


def written_in_place(folder: LocalPath, name: str, content: bytes) -> None:
    """Write a file by its own name."""
    with (folder / name).open("wb") as file:
        file.write(content[: len(content) // 2])
        file.write(content)
        folder.system.fsync(file.fileno())


# Drivers


def nothing(*_: object) -> None:
    """Check nothing."""


def no_lock(*_: object) -> contextlib.nullcontext[None]:
    """Keep no other JVM off."""
    return contextlib.nullcontext()


def never_overtaken(succession: Succession, batch: int) -> bool:
    """Take each batch as it comes."""
    is_first = succession._next == succession._first
    succession._next = batch + 1
    return is_first
