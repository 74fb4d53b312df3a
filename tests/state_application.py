# SPDX-License-Identifier: Apache-2.0
"""An application whose functions keep values of all kinds of types, and the checkpoint that it leaves.

Run as a program, it starts a Spark of its own that writes snapshots often, and handles one group of commands in each
micro-batch::

    PYTHONPATH=.:tests python tests/state_application.py CHECKPOINT
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import attrs
import pyarrow as pa
import pydantic
from google.protobuf.duration_pb2 import Duration
from pyspark import cloudpickle

from statefun import (
    BoolType,
    Context,
    DoubleType,
    IntType,
    LongType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    make_avro_type,
    make_json_type,
    make_msgpack_type,
    make_protobuf_type,
    message_builder,
    simple_type,
)
from statefun.components.running import RECORDS_ARROW, Offset, Reading
from statefun.engine.address_keys import address_of
from statefun.module.connectors import ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings
from statefun.runtime.stored.committed_state import CommittedState
from statefun.sdk.address import TypeName

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

COUNTER = "test.state/counter"
EVERYTHING = "test.state/everything"
BATCHES = 14
IDS = 40
MADE = datetime(2026, 1, 1, tzinfo=timezone.utc)
_PLACE = Location("state_application.py", 1, 1)


@attrs.frozen
class Line:
    """A line of an order."""

    item: str
    count: int = 1


@attrs.frozen
class Order:
    """An order."""

    lines: list[Line]
    placed: datetime | None = None


@dataclasses.dataclass
class Note:
    """A note."""

    text: str
    tags: dict[str, int]


class Profile(pydantic.BaseModel):
    """A profile."""

    name: str
    age: int | None = None


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "values", "type": {"type": "array", "items": "double"}},
        {"name": "comment", "type": ["null", "string"]},
    ],
}
SPECS: Mapping[str, object] = {
    "flag": True,
    "number": 7,
    "big": 1 << 40,
    "ratio": 0.5,
    "name": "Ada",
    "order": Order([Line("pen"), Line("ink", 2)], MADE),
    "note": Note("read", {"a": 1}),
    "profile": Profile(name="Ada"),
    "reading": {"sensor": "s1", "values": [1.0, 2.5], "comment": None},
    "span": Duration(seconds=90, nanos=5),
    "anything": {"free": [1, None, "x"]},
    "secret": (3, 4),
}
"""A value of each type."""


def everything() -> list[ValueSpec]:
    """Return the declarations of values of all types."""
    return [
        ValueSpec("flag", BoolType),
        ValueSpec("number", IntType),
        ValueSpec("big", LongType),
        ValueSpec("ratio", DoubleType),
        ValueSpec("name", StringType, expire_after_write=timedelta(days=3650)),
        ValueSpec("order", make_json_type("test.state/Order", Order)),
        ValueSpec("note", make_msgpack_type("test.state/Note", Note)),
        ValueSpec("profile", make_json_type("test.state/Profile", Profile)),
        ValueSpec("reading", make_avro_type("test.state/Reading", AVRO)),
        ValueSpec("span", make_protobuf_type(Duration)),
        ValueSpec("anything", make_json_type("test.state/Anything")),
        ValueSpec("secret", simple_type("test.state/Secret", bytes, tuple)),
    ]


def functions() -> StatefulFunctions:
    """Return the functions of the application."""
    made = StatefulFunctions()
    values = SPECS

    @made.bind(COUNTER, [ValueSpec("count", IntType)])
    def count(ctx: Context, message: Message) -> None:
        command = message.as_string()
        if command == "remove":
            del ctx.storage.count
            return
        ctx.storage.count = int(command)
        if command == "3":
            later = message_builder(COUNTER, ctx.address.id, str_value="99")
            ctx.send_after(timedelta(days=400), later)
            ctx.send_after(timedelta(days=500), later, "token")

    @made.bind(EVERYTHING, everything())
    def keep(ctx: Context, _message: Message) -> None:
        for name, value in values.items():
            setattr(ctx.storage, name, value)

    return made


def commands(batch: int) -> Iterator[tuple[str, str, str]]:
    """Yield the topic, key and value of each record of a micro-batch."""
    for number in range(IDS):
        if (number + batch) % 3 == 0:
            yield COUNTER, f"c{number}", "remove" if (number + batch) % 4 == 0 else str(batch)
    if batch == 1:
        yield EVERYTHING, "Ada", "keep"


def counts(batch: int) -> dict[str, int]:
    """Return the counts by id that there are after a micro-batch."""
    found: dict[str, int] = {}
    for each in range(batch + 1):
        for topic, key, value in commands(each):
            if topic == COUNTER and value == "remove":
                found.pop(key, None)
            elif topic == COUNTER:
                found[key] = int(value)
    return found


def read_counts(state: CommittedState) -> tuple[int, dict[str, int]]:
    """Return the number of the micro-batch of a state, and the counts by id."""
    found = {}
    for key, content in state:
        if address_of(key).typename == COUNTER:
            (value,) = AddressState.FromString(content).values
            found[address_of(key).id] = IntType.serializer().deserialize(value.value)
    return state.batch, found


class _Commands:
    """A source of the commands, one group of them for each micro-batch."""

    def initial_offset(self) -> Offset:
        return {"batches": 0}

    def latest_offset(self, start: Offset) -> Offset:
        return {"batches": min(start["batches"] + 1, BATCHES)}

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        return [str(batch).encode() for batch in range(start["batches"], end["batches"])]

    def bound(self) -> None:
        """Do nothing: the number of commands is fixed."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def read_commands(reading: Reading) -> object:
    """Return the commands as records."""
    return reading.planned(_Commands(), read_task)


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the commands of a micro-batch."""
    batch = int(task)
    rows = [
        {
            "key": key.encode(),
            "value": StringType.serializer().serialize(value),
            "topic": topic,
            "partition": 0,
            "offset": batch * 1000 + number,
            "timestamp": MADE,
            "headers": None,
        }
        for number, (topic, key, value) in enumerate(commands(batch))
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=RECORDS_ARROW)


def make(checkpoint: Path) -> None:
    """Run the application until it has handled all commands."""
    type_ = TypeName.parse(StringType.typename)
    routes = [
        TopicRoute(name, type_, (TypeName.parse(name),), _PLACE) for name in (COUNTER, EVERYTHING)
    ]
    ingress = ConnectorIngress(
        TypeName("test", "commands"),
        "test.commands.v1/ingress",
        tuple(routes),
        _PLACE,
        "state_application:read_commands",
        None,
    )
    settings = Settings.resolve(
        {}, None, checkpoint=checkpoint, available_now=True, quiet=True, state_partitions=2
    )
    Application(Module(connector_ingresses=(ingress,)), functions(), settings).run()


def made_checkpoint(folder: Path, meanwhile: Callable[[Path], object]) -> Path:
    """Return a checkpoint of the application, which a process of its own makes in a folder.

    Args:
        folder: the folder.
        meanwhile: called with the checkpoint again and again while the application runs.
    """
    checkpoint = folder / "check point"  # Spark's reader would misread the space
    tests = Path(__file__).parent
    paths = [str(tests.parent), str(tests)]
    conf = {"maintenanceInterval": "300ms", "minDeltasForSnapshot": "3"}
    arguments = [f"--conf spark.sql.streaming.stateStore.{key}={conf[key]}" for key in conf]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_SUBMIT_ARGS": " ".join(
            ["--master local[2]", "--conf spark.ui.enabled=false", *arguments, "pyspark-shell"]
        ),
        "PYSPARK_PYTHON": sys.executable,
    }
    code = f"import state_application, pathlib; state_application.make(pathlib.Path({json.dumps(str(checkpoint))}))"
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as process:
        while process.poll() is None:
            meanwhile(checkpoint)
            time.sleep(0.05)
    assert process.returncode == 0
    return checkpoint
