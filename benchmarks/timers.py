# SPDX-License-Identifier: Apache-2.0
"""Does a micro-batch cost more while many timers are pending, of which none is due?

The time of a one-record batch of an application with a million delayed messages, due over an
hour that is not there yet, against the same application with none. And what it takes to set them:
a storm that is due within one second, against as many that are spread over the hour.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from applications import TimedApplication, time_record
from report import Case, alternate, report

from statefun import Context, IntType, Message, StatefulFunctions, ValueSpec, message_builder
from statefun.dev import EmbeddedKafka

WARM_UP = 10
"""So many batches at the start of a run do not count."""
CALL = 10_000
"""So many delayed messages are sent by one call."""
STORM_START = time.time() + timedelta(hours=2).total_seconds()


def functions(topic: str) -> StatefulFunctions:
    """Return a function that notes the time, or sends delayed messages."""
    registry = StatefulFunctions()

    @registry.bind("bench/timers", [ValueSpec("seen", IntType)])
    def timers(ctx: Context, message: Message) -> None:
        if message.raw_value() == b"tell":
            ctx.storage.seen = (ctx.storage.seen or 0) + 1
            ctx.send(time_record(topic, time.time()))
            return
        for number in range(CALL):
            if message.raw_value() == b"storm":
                moment = STORM_START + random.random()  # noqa: S311 - no secret
                delay = timedelta(seconds=moment - time.time())
            else:
                delay = timedelta(hours=1 + random.random())  # noqa: S311 - no secret
            ctx.send_after(delay, message_builder("bench/timers", f"{number}", str_value="due"))

    return registry


def main() -> None:
    """Fill one application with timers, then measure both in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--storm", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()

    def seconds_to_set(application: TimedApplication, kind: bytes, pending: int) -> float:
        """Return how long it takes to set timers."""
        began = time.monotonic()
        calls = [kind] * (pending // CALL)
        application.run(functions(application.sink), calls, records_per_batch=10)
        return time.monotonic() - began

    def batch_seconds(application: TimedApplication) -> float:
        """Return the median time from one batch to the next."""
        count = arguments.batches + WARM_UP
        application.run(functions(application.sink), [b"tell"] * count, records_per_batch=1)
        return float(np.median(np.diff(application.times(count))[WARM_UP:]))

    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        with_timers, without = (
            TimedApplication(kafka, case, "bench/timers", Path(name) / case)
            for case in ("pending", "none")
        )
        seconds = seconds_to_set(with_timers, b"spread", arguments.pending)
        figures = alternate(
            arguments.runs, lambda: batch_seconds(with_timers), lambda: batch_seconds(without)
        )
        stormy, calm = (
            TimedApplication(kafka, case, "bench/timers", Path(name) / case)
            for case in ("storm", "spread")
        )
        storms = alternate(
            1,
            lambda: seconds_to_set(stormy, b"storm", arguments.storm),
            lambda: seconds_to_set(calm, b"spread", arguments.storm),
        )
    notes = [f"{arguments.pending:,} delayed messages were taken in {seconds:.0f} s"]
    cases = [
        Case("one record, timers pending vs none", "s", *figures),
        Case(f"{arguments.storm:,} timers set, one second vs one hour", "s", *storms),
    ]
    report("timers", cases, notes)


if __name__ == "__main__":
    main()
