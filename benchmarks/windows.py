# SPDX-License-Identifier: Apache-2.0
"""A function with windows against a typed handler that does the same work: CPU per record, in this process."""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timedelta, timezone
from functools import partial

from report import Case, alternate, report

from statefun import Address, Context, State, StatefulFunctions, StringType, TypedValue
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.times import to_epoch_millis
from statefun.windows import Hopping, Tumbling, Window, WindowContext, windowed

functions = StatefulFunctions()
MINUTE = timedelta(minutes=1)
NOW = to_epoch_millis(datetime(2026, 1, 1, tzinfo=timezone.utc)) + 30_000


class Clicks(Window):
    """Counts and sums."""

    count: int = 0
    characters: int = 0


class AllClicks(State):
    """The same without windows."""

    count: int = 0
    characters: int = 0


@functions.bind("benchmark/plain")
def plain(ctx: Context, text: str, clicks: AllClicks) -> None:  # noqa: ARG001 - as handlers are
    """Count and sum."""
    clicks.count += 1
    clicks.characters += len(text)


@windowed("benchmark/tumbling", Tumbling(MINUTE), functions=functions)
def tumbling(ctx: WindowContext, text: str, clicks: Clicks) -> None:  # noqa: ARG001 - as handlers are
    """Count and sum by minute."""
    clicks.count += 1
    clicks.characters += len(text)


@windowed("benchmark/hopping", Hopping(3 * MINUTE, every=MINUTE), functions=functions)
def hopping(ctx: WindowContext, text: str, clicks: Clicks) -> None:  # noqa: ARG001 - as handlers are
    """Count and sum by three minutes, each minute."""
    clicks.count += 1
    clicks.characters += len(text)


def seconds(name: str, count: int, others: int = 0) -> float:
    """Return the CPU time of a record, of ``count`` for an address in a micro-batch, with ``others`` open windows."""
    function = functions.for_typename(f"benchmark/{name}")
    address = Address("benchmark", name, "Ada")
    invocation = Invocation(None, TypedValue(StringType.typename, b"\n\x05hello"))
    batch = InvocationBatch(
        address, {}, [invocation] * count, times=[NOW] * count, watermark=NOW - 5000
    )
    if others:
        times = [NOW + number * MINUTE // timedelta(milliseconds=1) for number in range(others)]
        opened = invoke(function, batch._replace(invocations=[invocation] * others, times=times))
        mutations = opened.state_mutations
        batch = batch._replace(state={name: value for name, value in mutations.items() if value})
    state = invoke(function, batch).state_mutations
    batch = batch._replace(state={name: value for name, value in state.items() if value})
    rounds = 6_000 // count
    begin = time.process_time()
    for _ in range(rounds):
        invoke(function, batch)
    return (time.process_time() - begin) / rounds / count


def main() -> None:
    """Compare both at several numbers of records for an address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    cases = []
    for name in ("tumbling", "hopping"):
        for count in (1, 10, 100):
            ours, other = partial(seconds, name, count), partial(seconds, "plain", count)
            title = f"{name}, {count} for an address: windows vs typed handler"
            cases.append(Case(title, "s", *alternate(runs, ours, other)))
    many, few = partial(seconds, "tumbling", 100, 10_000), partial(seconds, "tumbling", 100)
    title = "tumbling, 100 for an address: 10,000 other open windows vs none"
    cases.append(Case(title, "s", *alternate(runs, many, few)))
    report("windows", cases)


if __name__ == "__main__":
    main()
