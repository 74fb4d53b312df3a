# SPDX-License-Identifier: Apache-2.0
"""The rules of the runtime, each with a sabotage that the simulation has to detect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from simulation import broken, driver
from simulation.cluster import ExactlyOnceModel
from simulation.publishing import SimulatedFactory
from statefun.runtime.checkpoint import folder as filesystem
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.dispatch import buckets, delays
from statefun.runtime.egress.lane import Lane, LaneBatch
from statefun.runtime.egress.tasks import LaneTask
from statefun.runtime.ingress import feedback
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.preflight.recovery import Succession
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.timers.clock import BatchClock
from statefun.runtime.timers.wheel import PendingBuckets, TimerLog


class Change(NamedTuple):
    """A replacement of an attribute."""

    owner: Any
    """The class or module."""
    attribute: str
    replacement: Callable[..., Any]


class Sabotage(NamedTuple):
    """A rule that is broken."""

    rule: str
    changes: Sequence[Change]
    """Several if each would be made up for by what the others change."""
    seed: int
    """A seed that detects it."""


SABOTAGES = {
    # Egresses
    "marker-before-fence": Sabotage(
        "a lane is fenced before its marker is read",
        [Change(ExactlyOnceModel, "open", broken.marker_before_fence)],
        6,
    ),
    "same-producer-again": Sabotage(
        "a producer that got no answer is not asked again",
        [Change(ExactlyOnceModel, "write", broken.same_producer_again)],
        6,
    ),
    "marker-apart": Sabotage(
        "records and marker are of one transaction",
        [Change(ExactlyOnceModel, "write", broken.marker_apart)],
        14,
    ),
    "forgotten-lanes": Sabotage(
        "the lanes of earlier runs are opened, too",
        [Change(SimulatedFactory, "create_progress", broken.forgotten_lanes)],
        30,
    ),
    "anybodys-lanes": Sabotage(
        "a lane that another run has taken over is left to it",
        [Change(Lane, "_accepted", broken.anybodys_lanes)],
        72,
    ),
    "anybodys-records": Sabotage(
        "what was published with a copy is not taken for one's own",
        [Change(Lane, "open", broken.anybodys_records)],
        916,
    ),
    "forgotten-runs": Sabotage(
        "runs are kept for as long as markers name them",
        [Change(Runs, "forget_all_but", broken.forgotten_runs)],
        16,
    ),
    "lanes-by-order": Sabotage(
        "a state partition is always in the same lane of a batch",
        [Change(LaneBatch, "of", broken.mixed_lanes)],
        49,
    ),
    "no-progress-of-lanes": Sabotage(
        "a task goes on where the last one of its lane has ended",
        [Change(LaneTask, "__call__", broken.no_progress)],
        76,
    ),
    "impatient-tasks": Sabotage(
        "a task gets further before it ends",
        [Change(LaneTask, "_publish", broken.impatient)],
        4,
    ),
    "published-before-commit": Sabotage(
        "effects are released once their batch is committed",
        [Change(Publisher, "_step", broken.released_early)],
        61,
    ),
    "uncommitted-leftovers": Sabotage(
        "a start publishes committed batches only",
        [
            Change(Outbox, "recover", broken.recovers_all),
            Change(Publisher, "_step", broken.released_early),
        ],
        7,
    ),
    "leftovers-forgotten": Sabotage(
        "a start publishes what an earlier run has left",
        [Change(Outbox, "recover", broken.recovers_nothing)],
        11,
    ),
    "finished-by-the-first": Sabotage(
        "a batch is done with when all egresses are",
        [Change(Publisher, "_published", broken.finished_by_first)],
        19,
    ),
    # Messages between functions
    "unordered-streams": Sabotage(
        "messages are read batch by batch, in order",
        [Change(Outbox, "batches", broken.batches_backwards)],
        12,
    ),
    "undelivered-deleted": Sabotage(
        "a batch is kept until its messages are delivered",
        [Change(Retention, "published", broken.deletes_undelivered)],
        0,
    ),
    "stale-stage": Sabotage(
        "what an earlier attempt has staged does not outlive an attempt that stages nothing",
        [Change(Succession, "check", broken.never_first)],
        24,
    ),
    # Timers
    "timers-forgotten": Sabotage(
        "buckets are noted before their batch leaves the outbox",
        [Change(TimerLog, "add", broken.adds_nothing)],
        12,
    ),
    "small-snapshot": Sabotage(
        "a snapshot has all pending buckets",
        [Change(TimerLog, "add", broken.small_snapshot)],
        23,
    ),
    "tick-ahead": Sabotage(
        "a bucket gets its tick when its time has come",
        [Change(FeedbackReader, "latest_offset", broken.tick_ahead)],
        4,
    ),
    "tick-never-back": Sabotage(
        "the tick follows a clock that is set back",
        [Change(FeedbackReader, "latest_offset", broken.tick_never_back)],
        2,
    ),
    "ticks-of-arrivals": Sabotage(
        "a bucket that arrives behind its tick gets one at once",
        [Change(FeedbackReader, "_due", broken.no_ticks_for_arrivals)],
        15,
    ),
    "dropped-too-early": Sabotage(
        "a bucket is pending until its tick is delivered",
        [Change(PendingBuckets, "drop", broken.drops_too_much)],
        2,
    ),
    "bucket-not-emptied": Sabotage(
        "a bucket that had its tick is empty",
        [Change(delays, "run_bucket", broken.keeps_bucket)],
        8,
    ),
    "split-forgotten": Sabotage(
        "the parts of a split bucket get ticks of their own",
        [Change(buckets, "_divide", broken.forgets_parts)],
        2,
    ),
    "released-unordered": Sabotage(
        "what is due is delivered by its time, whichever parts it has waited in",
        [Change(feedback, "_unwrapped", broken.unordered)],
        0,
    ),
    "cancelled-anyway": Sabotage(
        "a message whose token was cancelled is not released",
        [Change(delays, "cancel", broken.cancels_nothing)],
        2,
    ),
    "release-without-token": Sabotage(
        "a token is free again after its release",
        [Change(delays, "_run_token", broken.keeps_tokens)],
        16,
    ),
    # Clocks
    "workers-clock": Sabotage(
        "the driver's clock decides",
        [Change(BatchClock, "__init__", broken.own_clock)],
        1,
    ),
    "unbounded-lag": Sabotage(
        "a worker's clock is believed within bounds",
        [Change(BatchClock, "__init__", broken.unbounded_clock)],
        15,
    ),
    # Disks
    "file-not-synced": Sabotage(
        "a file is on the disk before it gets its name",
        [Change(filesystem, "_write_locally", broken.written_unsynced)],
        167,
    ),
    "deletion-not-synced": Sabotage(
        "a manifest is deleted on the disk before its records are",
        [Change(Outbox, "remove", broken.removed_unsynced)],
        564,
    ),
    "written-in-place": Sabotage(
        "a file appears by its name when it is complete",
        [Change(filesystem, "_write_locally", broken.written_in_place)],
        23,
    ),
    # Drivers
    "late-commits": Sabotage(
        "the JVM of an earlier driver commits no batch beside the next driver",
        [
            Change(driver, "await_earlier_jvm", broken.nothing),
            Change(driver, "jvm_lock", broken.no_lock),
            Change(Succession, "check_start", broken.nothing),
            Change(Succession, "check", broken.never_overtaken),
        ],
        147,
    ),
}


@contextmanager
def sabotaged(name_: str) -> Iterator[None]:
    """Break a rule for a while."""
    with ExitStack() as stack:
        for owner, name, replacement in SABOTAGES[name_].changes:
            # What is a built-in there is no attribute of the module yet.
            stack.enter_context(mock.patch.object(owner, name, replacement, create=True))
        yield
