# SPDX-License-Identifier: Apache-2.0
"""The rules of the runtime, each with a sabotage that the simulation has to detect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from simulation import broken, broken_calls, broken_elsewhere, driver
from simulation.cluster import ExactlyOnceModel
from simulation.publishing import SimulatedFactory
from statefun.engine import buckets, chunks, delays
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.left_calls import LeftCalls
from statefun.engine.transports import TransportCalls
from statefun.engine.wheel import PendingBuckets
from statefun.remote.remote_function import RemoteFunctions
from statefun.runtime.calls.call_register import CallRegister
from statefun.runtime.checkpoint import local_files as filesystem
from statefun.runtime.checkpoint.call_log import CallLog
from statefun.runtime.checkpoint.known_runs import Runs
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.egress.lane import Lane, LaneBatch
from statefun.runtime.egress.tasks import LaneTask
from statefun.runtime.ingress import feedback_tasks, holding
from statefun.runtime.ingress.committed_messages import CommittedMessages
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.preflight.recovery import Succession
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention


class Change(NamedTuple):
    """A replacement of an attribute."""

    owner: Any
    """The class or module."""
    attribute: str
    replacement: Callable[..., Any] | property


class Sabotage(NamedTuple):
    """A rule that is broken."""

    rule: str
    changes: Sequence[Change]
    """Several if each would be made up for by what the others change."""
    seeds: Sequence[int]
    """Seeds that detect it; more than one, because each step that the runtime takes in another way changes some of them."""


SABOTAGES = {
    # Egresses
    "marker-before-fence": Sabotage(
        "a lane is fenced before its marker is read",
        [Change(ExactlyOnceModel, "open", broken.marker_before_fence)],
        (262,),
    ),
    "same-producer-again": Sabotage(
        "a producer that got no answer is not asked again",
        [Change(ExactlyOnceModel, "write", broken.same_producer_again)],
        (1, 3, 13, 14),
    ),
    "marker-apart": Sabotage(
        "records and marker are of one transaction",
        [Change(ExactlyOnceModel, "write", broken.marker_apart)],
        (1, 3, 4, 14),
    ),
    "forgotten-lanes": Sabotage(
        "the lanes of earlier runs are opened, too",
        [Change(SimulatedFactory, "create_progress", broken.forgotten_lanes)],
        (4, 7, 15, 16),
    ),
    "anybodys-lanes": Sabotage(
        "a lane that another run has taken over is left to it",
        [Change(Lane, "_accepted", broken.anybodys_lanes)],
        (28, 231),
    ),
    "anybodys-records": Sabotage(
        "what was published with a copy is not taken for one's own",
        [Change(Lane, "open", broken.anybodys_records)],
        (296,),
    ),
    "forgotten-runs": Sabotage(
        "runs are kept for as long as markers name them",
        [Change(Runs, "forget_all_but", broken.forgotten_runs)],
        (1, 4, 7, 13),
    ),
    "lanes-by-order": Sabotage(
        "a state partition is always in the same lane of a batch",
        [Change(LaneBatch, "of", broken.mixed_lanes)],
        (130, 170),
    ),
    "no-progress-of-lanes": Sabotage(
        "a task goes on where the last one of its lane has ended",
        [Change(LaneTask, "__call__", broken.no_progress)],
        (1208,),
    ),
    "impatient-tasks": Sabotage(
        "a task gets further before it ends",
        [Change(LaneTask, "_publish", broken.impatient)],
        (0, 4, 7, 10),
    ),
    "published-before-commit": Sabotage(
        "effects are released once their batch is committed",
        [Change(Publisher, "_step", broken.released_early)],
        (134,),
    ),
    "uncommitted-leftovers": Sabotage(
        "a start publishes committed batches only",
        [
            Change(Outbox, "recover", broken.recovers_all),
            Change(Publisher, "_step", broken.released_early),
        ],
        (13, 21, 23, 35),
    ),
    "leftovers-forgotten": Sabotage(
        "a start publishes what an earlier run has left",
        [Change(Outbox, "recover", broken.recovers_nothing)],
        (0, 7, 8, 12),
    ),
    "finished-by-the-first": Sabotage(
        "a batch is done with when all egresses are",
        [Change(Publisher, "_published", broken.finished_by_first)],
        (21, 25, 38, 51),
    ),
    # Messages between functions
    "unordered-streams": Sabotage(
        "messages are read batch by batch, in order",
        [Change(Outbox, "batches", broken.batches_backwards)],
        (63, 77, 128),
    ),
    "undelivered-deleted": Sabotage(
        "a batch is kept until its messages are delivered",
        [Change(Retention, "published", broken.deletes_undelivered)],
        (0, 3, 4, 7),
    ),
    "stale-stage": Sabotage(
        "what an earlier attempt has staged does not outlive an attempt that stages nothing",
        [Change(Succession, "check", broken.never_first)],
        (24, 25, 47, 58),
    ),
    # Timers
    "timers-forgotten": Sabotage(
        "buckets are noted before their batch leaves the outbox",
        [Change(TimerLog, "add", broken.adds_nothing)],
        (3, 8, 16, 21),
    ),
    "small-snapshot": Sabotage(
        "a snapshot has all pending buckets",
        [Change(TimerLog, "add", broken.small_snapshot)],
        (3, 16, 51, 58),
    ),
    "tick-ahead": Sabotage(
        "a bucket gets its tick when its time has come",
        [Change(FeedbackReader, "latest_offset", broken.tick_ahead)],
        (2, 12, 25, 36),
    ),
    "tick-never-back": Sabotage(
        "the tick follows a clock that is set back",
        [Change(FeedbackReader, "latest_offset", broken.tick_never_back)],
        (43, 48, 56),
    ),
    "ticks-of-arrivals": Sabotage(
        "a bucket that arrives behind its tick gets one at once",
        [Change(CommittedMessages, "due", broken.no_ticks_for_arrivals)],
        (0, 10, 11, 23),
    ),
    "dropped-too-early": Sabotage(
        "a bucket is pending until its tick is delivered",
        [Change(PendingBuckets, "drop", broken.drops_too_much)],
        (0, 1, 2, 11),
    ),
    "bucket-not-emptied": Sabotage(
        "a bucket that had its tick is empty",
        [Change(delays, "run_bucket", broken.keeps_bucket)],
        (8, 33, 47, 48),
    ),
    "chunks-forgotten": Sabotage(
        "the chunks of a full bucket get ticks of their own",
        [Change(buckets, "_move", broken.forgets_chunks)],
        (0, 2, 11, 12),
    ),
    "chunks-known": Sabotage(
        "a new chunk of a bucket that is known is noted",
        [Change(PendingBuckets, "__contains__", broken.knows_chunks)],
        (0, 2, 11, 12),
    ),
    "released-from-coarse": Sabotage(
        "a coarse bucket releases what is due, and nothing else",
        [Change(buckets, "_deal", broken.releases_all)],
        (53, 97, 117),
    ),
    "passed-on-unnoted": Sabotage(
        "a bucket gets its tick to which a coarser one passes messages on",
        [Change(buckets, "_deal", broken.passes_on_unnoted)],
        (53, 79, 97),
    ),
    "released-unordered": Sabotage(
        "what is due is delivered by its time, whichever parts it has waited in",
        [Change(feedback_tasks, "_unwrapped", broken.unordered)],
        (2, 10, 11, 15),
    ),
    "cancelled-anyway": Sabotage(
        "a message whose token was cancelled is not released",
        [Change(delays, "cancel", broken.cancels_nothing)],
        (23, 24, 35, 36),
    ),
    "release-without-token": Sabotage(
        "a token is free again after its release",
        [Change(delays, "_run_token", broken.keeps_tokens)],
        (7, 35, 39, 43),
    ),
    # Values that expire
    "wake-ups-forgotten": Sabotage(
        "an address knows all wake-ups on their way to it",
        [Change(AddressValues, "next_wake_up", broken.knows_one_wake_up)],
        (11, 49, 170, 194),
    ),
    "kept-for-ever": Sabotage(
        "an address gets a wake-up when a value expires",
        [Change(AddressValues, "next_wake_up", broken.never_wakes_up)],
        (2, 11, 49, 62),
    ),
    # Functions elsewhere: messages that wait
    "chunks-overtaken": Sabotage(
        "what arrives goes behind the chunks of its address",
        [Change(TransportCalls, "append", broken_elsewhere.waits_before_chunks)],
        (56,),
    ),
    "settled-meanwhile": Sabotage(
        "no chunk is put in front of those that are on their way back",
        [Change(chunks, "settle_chunks", broken_elsewhere.settles_meanwhile)],
        (1003,),
    ),
    "chunks-asked-again": Sabotage(
        "a chunk is asked for once",
        [Change(chunks, "ask", broken_elsewhere.asks_again)],
        (48, 56),
    ),
    "chunks-unordered": Sabotage(
        "chunks come back in their order",
        [Change(chunks, "release", broken_elsewhere.comes_back_unordered)],
        (44, 56),
    ),
    "chunks-kept": Sabotage(
        "a chunk that has come back is empty",
        [Change(chunks, "run_chunk", broken_elsewhere.keeps_chunk)],
        (10, 25, 47),
    ),
    "waiting-counted-again": Sabotage(
        "a micro-batch that is repeated counts once",
        [Change(WaitingGauge, "add", broken_elsewhere.counts_again)],
        (0, 21, 44, 47),
    ),
    "waiting-counted-anew": Sabotage(
        "the count of what waits outlives a driver",
        [Change(holding, "_read_count", broken_elsewhere.counts_anew)],
        (1, 21, 25, 47),
    ),
    "waiting-never-less": Sabotage(
        "messages that are called again wait no more",
        [Change(TransportCalls, "resume", broken_elsewhere.resumes_nothing)],
        (0, 1, 10),
    ),
    "reading-not-held": Sabotage(
        "no record is read while too much waits",
        [Change(WaitingGauge, "is_holding", property(broken_elsewhere.never_holds))],
        (0, 25, 31, 44),
    ),
    # Functions elsewhere: suspects
    "suspects-together": Sabotage(
        "one suspect is called at a time, in all processes",
        [
            Change(RemoteFunctions, "admit", broken_elsewhere.all_have_turns),
            Change(TransportCalls, "with_history", broken_elsewhere.alone_as_a_suspect),
        ],
        (2570,),
    ),
    "others-in-a-turn": Sabotage(
        "while a suspect is called, its server is called for no other address",
        [Change(RemoteFunctions, "admit", broken_elsewhere.others_go_on)],
        (44, 56),
    ),
    "blamed-in-company": Sabotage(
        "a message is blamed that was called alone, and no other",
        [Change(TransportCalls, "with_history", broken_elsewhere.always_alone)],
        (0, 56, 121, 122),
    ),
    "trouble-forgotten": Sabotage(
        "what calls have come to is kept with the address",
        [Change(AddressValues, "remember", broken_elsewhere.remembers_nothing)],
        (0, 44, 56, 121),
    ),
    # Calls that leave their micro-batches
    "any-result": Sabotage(
        "a result counts if it belongs to the call that is under way",
        [
            Change(LeftCalls, "settle", broken_calls.any_result_counts),
            Change(CallRegister, "report", broken_calls.takes_any_report),
        ],
        (56, 58, 71, 73),
    ),
    "called-meanwhile": Sabotage(
        "messages wait while a call of their address is under way",
        [Change(Dispatcher, "_has_to_wait", broken_calls.calls_meanwhile)],
        (25, 44, 47, 48),
    ),
    "losses-forgotten": Sabotage(
        "the losses of a call count over runs",
        [Change(CallLog, "lose", broken_calls.forgets_losses)],
        (1037,),
    ),
    "bystanders-blamed": Sabotage(
        "a process that ends because the query has ended is no loss of its calls",
        [Change(CallRegister, "close", broken_calls.blames_all_ends)],
        (495,),
    ),
    "ends-blamed": Sabotage(
        "a process that ends in order is no loss of its calls",
        [Change(CallRegister, "ends", broken_calls.hears_of_no_end)],
        (71,),
    ),
    "lost-unnoticed": Sabotage(
        "a call is made again if its process is lost",
        [Change(CallRegister, "disconnected", broken_calls.loses_nothing)],
        (220,),
    ),
    "calls-not-logged": Sabotage(
        "a call is in the log before the micro-batch that it has left is committed",
        [Change(CallLog, "add", broken_calls.logs_nothing)],
        (0, 1, 44, 47),
    ),
    "small-call-snapshot": Sabotage(
        "a snapshot of the log of calls has all calls that are under way",
        [Change(CallLog, "add", broken_calls.logs_new_ones)],
        (47, 58, 73),
    ),
    "result-put-off": Sabotage(
        "the result of a call is applied before the messages that wait for it",
        [
            Change(LeftCalls, "settle", broken_calls.result_put_off),
            Change(Dispatcher, "_settled", broken_calls.result_at_last),
        ],
        (1, 25, 44),
    ),
    "early-reports-dropped": Sabotage(
        "a report may come before the micro-batch of its call is staged",
        [Change(CallRegister, "report", broken_calls.takes_no_early_report)],
        (0, 1, 21, 71),
    ),
    "waiting-blamed": Sabotage(
        "a call that has only waited is not blamed",
        [Change(LeftCalls, "_lose", broken_calls.blames_anyway)],
        (71,),
    ),
    "beginning-unnoticed": Sabotage(
        "a call is blamed that is lost each time that it runs",
        [Change(CallRegister, "report", broken_calls.takes_no_news)],
        (970,),
    ),
    # Clocks
    "workers-clock": Sabotage(
        "the driver's clock decides",
        [Change(BatchClock, "__init__", broken.own_clock)],
        (0, 2, 3, 10),
    ),
    "unbounded-lag": Sabotage(
        "a worker's clock is believed within bounds",
        [Change(BatchClock, "__init__", broken.unbounded_clock)],
        (0, 2, 3, 10),
    ),
    # Disks
    "file-not-synced": Sabotage(
        "a file is on the disk before it gets its name",
        [Change(filesystem, "_write_locally", broken.written_unsynced)],
        (94, 138, 167, 173),
    ),
    "deletion-not-synced": Sabotage(
        "a manifest is deleted on the disk before its records are",
        [Change(Outbox, "remove", broken.removed_unsynced)],
        (4564,),
    ),
    "written-in-place": Sabotage(
        "a file appears by its name when it is complete",
        [Change(filesystem, "_write_locally", broken.written_in_place)],
        (73, 79, 81, 144),
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
        (213,),
    ),
}


@contextmanager
def sabotaged(name_: str) -> Iterator[None]:
    """Break a rule for a while."""
    with ExitStack() as stack:
        for owner, name, replacement in SABOTAGES[name_].changes:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield
