# SPDX-License-Identifier: Apache-2.0
"""What does it cost that values of many addresses expire in a month?

Addresses appear one after the other for 30 days, each with a value that expires 30 days after it was
written, or with a message that is delayed by 30 days. The runtime's own code keeps their wake-ups and
messages in buckets, without Spark; what the driver and the buckets hold at the end is measured, and
what an address costs. Then Spark runs micro-batches of further such addresses beside the same without
expiry.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import attrs
from operator_runs import run_batches, write_batches
from report import Case, report

from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec
from statefun.engine.address_values import AddressValues
from statefun.engine.buckets import DELAYED, run_bucket
from statefun.engine.delays import Due, schedule_wake_up, send_at
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.row import Row
from statefun.engine.wheel import PendingBuckets, bucket_for, is_chunk, tick_of
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.rows.effect_streams import MESSAGE_SCHEMA, arrow_stream, read_batches
from statefun.runtime.spark.session import keep_checkpoint_locally, open_session
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

TTL = timedelta(days=30)
_MILLISECONDS = round(TTL / timedelta(milliseconds=1))
_START = 1_800_000_000_000
_TYPE = b"\0bench/expiring"
_EXPIRATION = [Expiration("seen", TTL, on_call=False)]
_VALUE = {"seen": TypedValue("io.statefun.types/int", b"\x08\x01")}


def expire(key: bytes, now: int, effects: Effects) -> None:
    """Let an address write its value."""
    values = AddressValues(None)
    values.apply(_VALUE)
    values.renew(_EXPIRATION, _VALUE, now)
    schedule_wake_up(Group(key, _NO_COLUMNS, 0, 0, values), now, effects)


def delay(key: bytes, now: int, effects: Effects) -> None:
    """Let an address delay a message."""
    send_at(Due(now + _MILLISECONDS, now, 1), Row(key, key, "bench/later", b"later"), effects)


_NO_COLUMNS = Columns([], [], [], [], [], cell=lambda *_: None)


@attrs.define
class Waiting:
    """What waits, as the driver and the state know it."""

    pending: PendingBuckets = attrs.Factory(PendingBuckets)
    full: dict[bytes, bytes] = attrs.Factory(dict)
    """The states of buckets by their keys."""
    chunks: dict[bytes, int] = attrs.Factory(dict)
    """The sizes of the states of chunks."""
    written: int = 0
    """Bytes of states written."""

    def take(self, effects: Effects) -> None:
        """Deliver what was sent to buckets, and to chunks."""
        while effects.messages:
            self.pending.add(effects.buckets)
            arrived = defaultdict(list)
            for batch in read_batches(
                BytesIO(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA))
            ):
                columns = (batch[name].to_pylist() for name in ("target", "value"))
                for target, value in zip(*columns, strict=True):
                    arrived[target].append(value)
            effects = Effects()
            for key, contents in arrived.items():
                values, count = AddressValues(self.full.get(key)), len(contents)
                none, typenames, flags = [None] * count, [DELAYED] * count, [0] * count
                columns_ = Columns(none, typenames, contents, none, flags, cell=lambda *_: None)
                run_bucket(Group(key, columns_, 0, count, values), effects)
                state = values.encoded() or b""
                self.written += len(state)
                if is_chunk(key):
                    self.chunks[key] = len(state)
                else:
                    self.full[key] = state


def measured(
    name: str, act: Callable[[bytes, int, Effects], None], addresses: int, step: int
) -> Iterator[str]:
    """Let addresses act for 30 days; yield what it cost, and what waits then."""
    waiting, senders, buckets = Waiting(), 0.0, 0.0
    for first in range(0, addresses, step):
        now = _START + _MILLISECONDS * first // addresses
        effects = Effects()
        began = time.process_time()
        for number in range(first, min(first + step, addresses)):
            act(b"%016d" % number + _TYPE, now, effects)
        sent = time.process_time()
        waiting.take(effects)
        senders += sent - began
        buckets += time.process_time() - sent
        waiting.pending.drop(tick_of(now))
    sizes = [*map(len, waiting.full.values()), *waiting.chunks.values()]
    yield (
        f"{name}, {addresses:,} addresses: {len(waiting.pending):,} buckets with "
        f"{len(waiting.chunks):,} chunks; states of {statistics.median(sizes):,.0f} bytes, at most "
        f"{max(sizes):,}; {sum(sizes) / addresses:.0f} bytes kept and "
        f"{waiting.written / addresses:.0f} written for each address; CPU for each address: "
        f"{senders / addresses * 1e6:.1f} µs to send, {buckets / addresses * 1e6:.1f} µs in buckets"
    )
    yield f"{name}: {driver_figures(waiting.pending.all())}"


def driver_figures(buckets: Iterable[int]) -> str:
    """Return what buckets cost the driver."""
    numbers = list(buckets)
    tracemalloc.start()
    pending = PendingBuckets()
    pending.add(numbers)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    with tempfile.TemporaryDirectory(
        prefix="statefun-bench-", ignore_cleanup_errors=True
    ) as folder:
        log = TimerLog(Folder.at(folder))
        for batch in range(99):
            log.add(batch, [], pending)
        began = time.process_time()
        log.add(99, [], pending)
        seconds = time.process_time() - began
        size = (Path(folder) / "timers" / "99.all").stat().st_size
    return (
        f"the driver holds {memory / 1e6:.2f} MB; a snapshot takes {seconds * 1000:.1f} ms and "
        f"{size:,} bytes"
    )


def exact_buckets(addresses: int) -> Iterator[int]:
    """Yield the buckets that the same would have with exact times only."""
    for number in range(addresses):
        due = _START + _MILLISECONDS + _MILLISECONDS * number // addresses
        yield bucket_for(due, b"%016d" % number + _TYPE)


def functions(*, expiring: bool) -> StatefulFunctions:
    """Return a function that counts, with or without expiry."""
    registry = StatefulFunctions()
    ttl = TTL if expiring else None

    @registry.bind("bench/count", specs=[ValueSpec("seen", IntType, expire_after_write=ttl)])
    def count(ctx: Context, _message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1

    return registry


def main() -> None:
    """Measure the parts alone, then Spark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--addresses", type=int, default=10_000_000)
    parser.add_argument("--step", type=int, default=1000, help="so many in a micro-batch")
    parser.add_argument("--exact", type=int, default=1_000_000, help="exact times, to compare with")
    parser.add_argument("--spark", type=int, default=1_000_000, help="addresses on Spark")
    arguments = parser.parse_args()
    notes = [
        *measured("expiry", expire, arguments.addresses, arguments.step),
        *measured("delays", delay, arguments.addresses, arguments.step),
        f"exact times of {arguments.exact:,} addresses, to compare with: "
        + driver_figures(exact_buckets(arguments.exact)),
    ]
    for note in notes:
        print(note, flush=True)
    session = open_session(debug=False, state_partitions=2)
    keep_checkpoint_locally(session)
    seconds: dict[bool, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        size = 10_000
        batches = [range(at, at + size) for at in range(0, arguments.spark, size)]
        source = Path(name) / "in"
        write_batches(source, "bench/count", batches)
        for expiring in (True, False):
            run = run_batches(session, source, Path(name), functions(expiring=expiring))
            seconds[expiring] = list(run.batch_seconds[len(batches) // 5 :])  # the rest is cold
    case = Case(f"{size:,} new addresses, expiring vs not", "s", seconds[True], seconds[False])
    report("expiry", [case], notes)


if __name__ == "__main__":
    main()
