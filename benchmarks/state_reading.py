# SPDX-License-Identifier: Apache-2.0
"""How long does it take to look into a checkpoint with a million addresses?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

from statefun import Context, IntType, Message, StatefulFunctions, StringType, ValueSpec
from statefun.components.running import RECORDS_ARROW, Offset, Reading
from statefun.module.connectors import ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings
from statefun.sdk.address import TypeName

# Workers cannot import the modules of benchmarks.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

_AT = Location("state_reading.py", 1, 1)
_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)
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
            "key": b"visitor-%d" % (number % 1_000_000),
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


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
