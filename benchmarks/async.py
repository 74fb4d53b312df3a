# SPDX-License-Identifier: Apache-2.0
"""Coroutine functions: 1,000 addresses that each await 100 ms, side by side.

Compared with the same calls one after the other, which take 100 s.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from operator_runs import run_batches, write_batches
from report import Case, report

from statefun import Context, Message, StatefulFunctions
from statefun.runtime.spark.session import keep_checkpoint_locally, open_session

ADDRESSES = 1000
AWAIT_SECONDS = 0.1


def functions() -> StatefulFunctions:
    """Return the function under test."""
    registry = StatefulFunctions()

    @registry.bind("bench/wait")
    async def wait(_ctx: Context, _message: Message) -> None:
        await asyncio.sleep(AWAIT_SECONDS)

    return registry


def main() -> None:
    """Measure the micro-batches behind the first, which warms everything up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    session = open_session(debug=False, state_partitions=2)
    keep_checkpoint_locally(session)
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        source = Path(name) / "in"
        write_batches(source, "bench/wait", [range(ADDRESSES)] * (arguments.runs + 1))
        run = run_batches(session, source, Path(name), functions())
    seconds = run.collect_seconds[1:]
    case = Case(
        "1,000 addresses awaiting 100 ms", "s", seconds, [ADDRESSES * AWAIT_SECONDS] * len(seconds)
    )
    report("async", [case])


if __name__ == "__main__":
    main()
