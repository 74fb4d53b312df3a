# SPDX-License-Identifier: Apache-2.0
"""How long does it take to look into a checkpoint with a million addresses?

An application makes the checkpoint, in a process of its own, so that Spark writes snapshots meanwhile. Then the
commands run as a user runs them, each in a process of its own; the times within a process, without its start, are those
of the reader and of Spark's reader.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

from statefun import (
    Address,
    Context,
    IntType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    state,
)
from statefun.components.running import RECORDS_ARROW, Offset, Reading
from statefun.inspect.state_listing import addresses_by_type
from statefun.module.connectors import ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.address_report import address_report
from statefun.runtime.stored.committed_state import with_state
from statefun.runtime.stored.known_values import KnownValues
from statefun.sdk.address import TypeName

# Workers cannot import the modules of benchmarks.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

_AT = Location("state_reading.py", 1, 1)
_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)
_ADDRESSES = 1_000_000
_PER_BATCH = 100_000
_PER_TASK = 25_000


def greeters() -> StatefulFunctions:
    """Return the function whose addresses are read."""
    registry = StatefulFunctions()

    @registry.bind("bench/greeter", [ValueSpec("visits", IntType), ValueSpec("name", StringType)])
    def greet(ctx: Context, message: Message) -> None:
        ctx.storage.visits = (ctx.storage.visits or 0) + 1
        ctx.storage.name = message.as_string()

    return registry


class _Visitors:
    """A source of one record per address, and of a second record for the first addresses."""

    def __init__(self, count: int) -> None:
        self._count = count

    def initial_offset(self) -> Offset:
        return {"records": 0}

    def latest_offset(self, start: Offset) -> Offset:
        return {"records": min(start["records"] + _PER_BATCH, self._count)}

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        return [
            json.dumps([at, min(at + _PER_TASK, end["records"])]).encode()
            for at in range(start["records"], end["records"], _PER_TASK)
        ]

    def bound(self) -> None:
        """Do nothing: the number of records is fixed."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def read_visitors(reading: Reading) -> object:
    """Return as many records as the settings of the ingress say."""
    return reading.planned(_Visitors(reading.ingress.settings), read_task)


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the records of a task."""
    rows = [
        {
            "key": b"visitor-%d" % (number % _ADDRESSES),
            "value": StringType.serializer().serialize(f"Visitor {number}"),
            "topic": "visits",
            "partition": 0,
            "offset": number,
            "timestamp": _TIME,
            "headers": None,
        }
        for number in range(*json.loads(task))
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=RECORDS_ARROW)


def make(checkpoint: Path, count: int) -> None:
    """Run an application on so many records."""
    route = TopicRoute(
        "visits", TypeName.parse(StringType.typename), (TypeName("bench", "greeter"),), _AT
    )
    ingress = ConnectorIngress(
        TypeName("bench", "visits"),
        "bench.visits.v1/ingress",
        (route,),
        _AT,
        "state_reading:read_visitors",
        count,
    )
    settings = Settings.resolve({}, None, checkpoint=checkpoint, available_now=True, quiet=True)
    Application(Module(connector_ingresses=(ingress,)), greeters(), settings).run()


def made(folder: Path) -> Path:
    """Make a checkpoint with a million addresses, snapshots, and changes after them."""
    checkpoint = folder / "checkpoint"
    code = (
        "import pathlib, state_reading\n"
        f"state_reading.make(pathlib.Path({str(checkpoint)!r}), {_ADDRESSES + 301_000})"
    )
    conf = "spark.sql.streaming.stateStore.maintenanceInterval=5s"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "PYSPARK_SUBMIT_ARGS": f"--conf {conf} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    return checkpoint


def command(checkpoint: Path, *arguments: str) -> float:
    """Return the seconds that a command takes, with the start of its process."""
    begin = time.perf_counter()
    program = Path(sys.executable).parent / "statefun"
    subprocess.run(
        [program, "state", *arguments, "--checkpoint", str(checkpoint)],
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - begin


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def shown(checkpoint: Folder, id_: str) -> None:
    """Do what ``show`` does with an address."""
    known = KnownValues.of(checkpoint, None)
    address = Address("bench/greeter", id_)
    found = with_state(
        checkpoint, None, lambda state: address_report(state, address, known, is_newest=True)
    )
    if not found.values:
        raise AssertionError(f"{address} has no state")


def main() -> None:
    """Measure each way to read, several times, and print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--checkpoint", type=Path, help="one that an earlier run has made with --keep"
    )
    parser.add_argument("--keep", type=Path, help="an empty folder for the checkpoint")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name:
        location = options.checkpoint or made(options.keep or Path(name))
        checkpoint = Folder.at(location)
        query = "select id, visits from `bench/greeter` order by visits desc limit 10"
        actions: dict[str, Callable[[], float]] = {
            "show, one address, in a process": partial(
                seconds, partial(shown, checkpoint, "visitor-77")
            ),
            "count, in a process": partial(
                seconds, partial(with_state, checkpoint, None, addresses_by_type)
            ),
            "statefun state show": partial(command, location, "show", "bench/greeter/visitor-77"),
            "statefun state ls": partial(command, location, "ls", "bench/greeter"),
            "statefun state count": partial(command, location, "count"),
            "statefun state sql, order by, with the start of Spark": partial(
                command, location, "sql", query
            ),
        }
        for title, action in actions.items():
            print_median(title, [action() for _ in range(options.runs)])
        session = open_session(debug=False, state_partitions=None, kafka=False)
        frame = state(session, location, "bench/greeter", functions=StatefulFunctions())
        frames: dict[str, Callable[[], object]] = {
            "DataFrame, count": frame.count,
            "DataFrame, one id": lambda: frame.where("id = 'visitor-77'").collect(),
            "DataFrame, sum of a value": lambda: frame.agg({"visits": "sum"}).collect(),
        }
        for title, read in frames.items():
            print_median(title, [seconds(read) for _ in range(options.runs)])


def print_median(title: str, times: Sequence[float]) -> None:
    """Print the median of times, and the smallest and largest one."""
    print(f"{title}: {statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f})")


if __name__ == "__main__":
    main()
