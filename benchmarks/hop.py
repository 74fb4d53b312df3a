# SPDX-License-Identifier: Apache-2.0
"""Latency of messages between functions: a chain in which each function sends to the next one.

A hop is the time from one function's call to the next one's, by the machine's clock: one
micro-batch, with the outbox, the commit and the discovery of waiting messages. Compared
with the same chain where Spark evaluates the operator through pandas.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from applications import TimedApplication, time_record
from report import Case, alternate, report

from statefun import (
    Context,
    IntType,
    Message,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.dev import EmbeddedKafka

WARM_UP = 10
"""So many hops at the start of a chain do not count."""
chains = itertools.count()


def functions(topic: str, hops: int) -> StatefulFunctions:
    """Return a function that notes the time and sends on, so many times."""
    registry = StatefulFunctions()

    @registry.bind("bench/hop", [ValueSpec("seen", IntType)])
    def hop(ctx: Context, message: Message) -> None:
        now = time.time()
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        number = message.as_int() if ctx.caller else 0
        ctx.send(time_record(topic, now))
        if number < hops:
            ctx.send(message_builder("bench/hop", f"hop {number}", int_value=number + 1))

    return registry


def chain(kafka: EmbeddedKafka, folder: Path, hops: int, found: list[float], path: str) -> float:
    """Run one chain; return the median seconds of its hops, and add all of them to ``found``."""
    name = f"chain-{next(chains)}"
    application = TimedApplication(kafka, name, "bench/hop", folder / name)
    application.run(functions(application.sink, hops), [b""], dispatch=path)
    latencies = np.diff(application.times(hops + 1))[WARM_UP:]
    found.extend(latencies)
    return float(np.median(latencies))


def main() -> None:
    """Measure chains in turn, with either way to call functions."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hops", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    ours: list[float] = []
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        measure = partial(chain, kafka, Path(name), arguments.hops)
        figures = alternate(
            arguments.runs,
            lambda: measure(ours, "arrow"),
            lambda: measure([], "pandas"),
        )
    counted = np.array(ours[-arguments.runs * (arguments.hops - WARM_UP) :]) * 1000
    p50, p99 = np.percentile(counted, [50, 99])
    notes = [f"latency per hop: p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(counted)} hops"]
    report("hop", [Case("one hop, Arrow vs pandas dispatch", "s", *figures)], notes)


if __name__ == "__main__":
    main()
