# SPDX-License-Identifier: Apache-2.0
"""The operator alone: Spark's pandas evaluation against ours on Arrow batches.

Every message updates one state value and sends one egress record. The same plan, state store
and functions; only the Python side of the operator differs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from operator_runs import run_batches, write_batches
from pyspark.sql import SparkSession
from report import Case, alternate, report

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.runtime.spark.session import keep_checkpoint_locally, open_session


def functions() -> StatefulFunctions:
    """Return the function under test."""
    registry = StatefulFunctions()

    @registry.bind("bench/count", [ValueSpec("seen", IntType)])
    def count(ctx: Context, _message: Message) -> None:
        seen = (ctx.storage.seen or 0) + 1
        ctx.storage.seen = seen
        ctx.send(KafkaEgressMessage("bench/out", topic="out", key=ctx.address.id, value=seen))

    return registry


def last_batch(session: SparkSession, source: Path, folder: Path, *, arrow: bool) -> float:
    """Return the seconds that the last micro-batch takes."""
    run = run_batches(session, source, folder, functions(), arrow=arrow)
    return run.collect_seconds[-1]


def main() -> None:
    """Compare at 1, 10 and 100 messages per address, then find the capacity of one batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--addresses", type=int, default=10_000, help="for the comparison")
    parser.add_argument("--messages", default="1,10,100", help="per address")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", type=int, default=200_000, help="addresses, without pandas")
    arguments = parser.parse_args()
    session = open_session(debug=False, state_partitions=2)
    keep_checkpoint_locally(session)
    generator = np.random.default_rng(1)
    cases, notes = [], []
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)

        def write(addresses: int, per_address: int) -> Path:
            # Two micro-batches, of which the second counts: state is there, and all is warm.
            ids = np.repeat(np.arange(addresses), per_address)
            source = folder / f"in-{addresses}-{per_address}"
            write_batches(source, "bench/count", [generator.permutation(ids) for _ in range(2)])
            return source

        for per_address in map(int, arguments.messages.split(",")):
            source = write(arguments.addresses, per_address)
            measure = partial(last_batch, session, source, folder)
            figures = alternate(
                arguments.runs, partial(measure, arrow=True), partial(measure, arrow=False)
            )
            title = f"{arguments.addresses:,} addresses, {per_address} messages each"
            cases.append(Case(title, "s", *figures))
        source = write(arguments.large, 1)
        seconds = [
            last_batch(session, source, folder, arrow=True) for _ in range(arguments.runs + 1)
        ]
        rates = sorted(arguments.large / second for second in seconds[1:])
        notes.append(
            f"{arguments.large:,} addresses, 1 message each, Arrow: "
            f"{statistics.median(rates):,.0f} addresses/s ({rates[0]:,.0f}-{rates[-1]:,.0f})"
        )
    report("dispatch", cases, notes)


if __name__ == "__main__":
    main()
