# SPDX-License-Identifier: Apache-2.0
"""How long does it take to make a checkpoint of a million addresses, and to divide its state anew?

``statefun.bootstrap()`` makes the checkpoint, and an application adds timers. Then its state is divided into 16 partitions
and into 4 again, by commands in processes of their own, some of which are killed at random. After each step, all states
must be the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark import cloudpickle

import statefun
from statefun import (
    Context,
    IntType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.components.running import RECORDS_ARROW, Offset, Reading
from statefun.module.connectors import ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import open_session
from statefun.runtime.stored.committed_state import CommittedState, with_state
from statefun.sdk.address import TypeName

# Workers cannot import the modules of benchmarks.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

T = TypeVar("T")

_AT = Location("rescaling.py", 1, 1)
_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)
_PER_TASK = 25_000
_GREETER = "bench/greeter"


def greeters() -> StatefulFunctions:
    """Return a function that counts its visitors, and reminds each of them in a day."""
    registry = StatefulFunctions()

    @registry.bind(_GREETER, [ValueSpec("visits", IntType), ValueSpec("name", StringType)])
    def greet(ctx: Context, _message: Message) -> None:
        ctx.storage.visits += 1  # each address has a value before
        reminder = message_builder(_GREETER, ctx.address.id, str_value="reminder")
        ctx.send_after(timedelta(days=1), reminder)

    return registry


class _Visitors:
    """A source of one record for each of the first addresses."""

    def __init__(self, count: int) -> None:
        self._count = count

    def initial_offset(self) -> Offset:
        return {"records": 0}

    def latest_offset(self, _start: Offset) -> Offset:
        return {"records": self._count}

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        first, last = start["records"], end["records"]
        return [b"%d %d" % (at, min(at + _PER_TASK, last)) for at in range(first, last, _PER_TASK)]

    def bound(self) -> None:
        """Do nothing: the number of records is fixed."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def read_visitors(reading: Reading) -> object:
    """Return as many records as the settings of the ingress say."""
    return reading.planned(_Visitors(reading.ingress.settings), read_task)


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the records of a task."""
    value = StringType.serializer().serialize("visit")
    rows = [
        {
            "key": b"visitor-%d" % number,
            "value": value,
            "topic": "visits",
            "partition": 0,
            "offset": number,
            "timestamp": _TIME,
            "headers": None,
        }
        for number in range(*map(int, task.split()))
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=RECORDS_ARROW)


def run(checkpoint: Path, records: int) -> None:
    """Run the application until it has handled so many records since its beginning."""
    type_ = TypeName.parse(StringType.typename)
    ingress = ConnectorIngress(
        TypeName("bench", "visits"),
        "bench.visits.v1/ingress",
        (TopicRoute("visits", type_, (TypeName.parse(_GREETER),), _AT),),
        _AT,
        "rescaling:read_visitors",
        records,
    )
    settings = Settings.resolve({}, None, checkpoint=checkpoint, available_now=True, quiet=True)
    Application(Module(connector_ingresses=(ingress,)), greeters(), settings).run()


def digest(checkpoint: Path) -> tuple[int, int]:
    """Return the number of addresses, and a digest of their keys and states, in whatever order they come."""

    def read(state: CommittedState) -> tuple[int, int]:
        count = total = 0
        for key, content in state:
            row = hashlib.sha256(b"%d %b%b" % (len(key), key, content)).digest()
            total ^= int.from_bytes(row, "big")
            count += 1
        return count, total

    return with_state(Folder.at(checkpoint), None, read)


def partitions(checkpoint: Path) -> int | None:
    """Return the number of partitions after the newest committed micro-batch."""
    log = CommitLog(Folder.at(checkpoint))
    return log.state_partitions(log.newest())


def check(checkpoint: Path, states: tuple[int, int], number: int | None = None) -> None:
    """End the program if the states, or the number of partitions, are not those that they must be."""
    if digest(checkpoint) != states or (number or partitions(checkpoint)) != partitions(checkpoint):
        sys.exit(
            f"the state in {checkpoint} has changed, or has {partitions(checkpoint)} partitions"
        )


def timed(what: str, step: Callable[[], T]) -> T:
    """Take a step, and print how long it took."""
    start = time.monotonic()
    result = step()
    print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)
    return result


def rescale(checkpoint: Path, number: int) -> None:
    """Run the command."""
    subprocess.run(_command(checkpoint, number), check=True, stderr=subprocess.DEVNULL)


def killed(checkpoint: Path, number: int, most_seconds: float) -> None:
    """Run the command, and kill it a moment after it has planned its micro-batch."""
    planned = checkpoint / "offsets" / f"{CommitLog(Folder.at(checkpoint)).newest() + 1}"
    before = planned.stat().st_mtime_ns if planned.exists() else 0
    with subprocess.Popen(_command(checkpoint, number), stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and (
            not planned.exists() or planned.stat().st_mtime_ns == before
        ):
            time.sleep(0.02)
        wait = random.uniform(0, most_seconds)  # noqa: S311 - no secret
        time.sleep(wait)
        process.kill()
    print(f"killed {wait:.1f} s after its plan: {partitions(checkpoint)} partitions", flush=True)


def _command(checkpoint: Path, number: int) -> list[str]:
    command = [sys.executable, "-m", "statefun.cli", "rescale", str(checkpoint)]
    return [*command, "--state-partitions", f"{number}"]


def main() -> None:
    """Make the checkpoint, and divide its state again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--addresses", type=int, default=1_000_000)
    parser.add_argument("--timers", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        spark = open_session(debug=False, state_partitions=None, kafka=False)
        spark.range(1).count()  # starts the workers
        frame = spark.range(options.addresses).selectExpr(
            "concat('visitor-', id) as id", "1 as visits", "concat('Visitor ', id) as name"
        )
        timed(
            f"bootstrap of {options.addresses:,} addresses",
            lambda: statefun.bootstrap(
                spark, checkpoint, {_GREETER: frame}, functions=greeters(), state_partitions=4
            ),
        )
        timed(f"{options.timers:,} timers", lambda: run(checkpoint, options.timers))
        before = timed("reading of all states", lambda: digest(checkpoint))
        print(f"{before[0]:,} addresses, including those of timers", flush=True)
        for number in (16, 4):
            for _ in range(options.kills // 2):
                killed(checkpoint, number, 15)
                check(checkpoint, before)
            timed(f"statefun rescale to {number}", lambda: rescale(checkpoint, number))  # noqa: B023 - is called here
            check(checkpoint, before, number)
        file = Path(folder) / "state.parquet"
        command = [sys.executable, "-m", "statefun.cli", "state", "export"]
        timed(
            "statefun state export",
            lambda: subprocess.run([*command, str(checkpoint), str(file)], check=True),
        )
        timed("another run", lambda: run(checkpoint, options.timers + 1_000))
        print(f"{digest(checkpoint)[0]:,} addresses", flush=True)


if __name__ == "__main__":
    main()
