# SPDX-License-Identifier: Apache-2.0
"""The program of the checkpoint that is stored with the tests, and the script that makes it again.

``tests/runtime/checkpoints/format-<n>`` is a checkpoint in format ``n``, as a version of statefun has left
it: with state, delayed messages that wait, and a message between functions that is not delivered. Every
version that reads the format has to go on from it. A version with another ``CHECKPOINT_FORMAT`` adds one::

    PYTHONPATH=.:tests python tests/stored_checkpoint.py

From the first release on, a stored one is not made again: it shows that a version reads what earlier ones have
written. Until then, a change of what is written removes the folder, and runs the script.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import attrs
import pyarrow as pa
from harness import run
from pyspark import cloudpickle

from statefun import (
    Context,
    FunctionError,
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
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.reporting.summary import Summary
from statefun.sdk.address import TypeName

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

CHECKPOINTS = Path(__file__).resolve().parent / "runtime" / "checkpoints"
MADE = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""When the stored checkpoints were made, by the clock of their runs."""
DELAY = timedelta(hours=1)
_LOCKS = ("driver.lock", "jvm.lock")
_PLACE = Location("stored_checkpoint.py", 1, 1)


@attrs.frozen
class StoppedClock:
    """A clock that stands still."""

    time: datetime = MADE

    def now(self) -> int:
        """Return the same time at each call."""
        return round(self.time.timestamp() * 1000)

    def monotonic(self) -> int:
        """Return the same moment at each call."""
        return 0


def functions(*, is_broken: bool = False) -> StatefulFunctions:
    """Return the functions of the program.

    Args:
        is_broken: whether payments fail, so that their messages are never delivered.
    """
    made = StatefulFunctions()
    lifetime = timedelta(days=365)
    note = ValueSpec("note", StringType, expire_after_write=lifetime)

    @made.bind("test.fns/account", [ValueSpec("total", IntType), note])
    def account(ctx: Context, message: Message) -> None:
        amount = message.as_int() if message.is_int() else 1
        ctx.storage.total = (ctx.storage.total or 0) + amount
        if message.is_string() and message.as_string() == "remind":
            ctx.storage.note = "reminded"
            ctx.send_after(DELAY, message_builder("test.fns/account", ctx.address.id, int_value=10))
            cancellable = message_builder("test.fns/account", ctx.address.id, int_value=100)
            ctx.send_after(DELAY, cancellable, "token")
        elif message.is_string():
            ctx.send(message_builder("test.fns/ledger", ctx.address.id, int_value=1000))

    @made.bind("test.fns/ledger", [ValueSpec("total", IntType)])
    def ledger(ctx: Context, message: Message) -> None:
        if is_broken:
            raise ValueError(message.as_int())
        ctx.storage.total = (ctx.storage.total or 0) + message.as_int()

    return made


def step(
    checkpoint: Path, commands: Sequence[str], clock: StoppedClock, *, is_broken: bool = False
) -> Summary:
    """Run the program on commands for the account of Ada; earlier runs have read the first ones."""
    route = TopicRoute(
        "commands", TypeName.parse(StringType.typename), (TypeName("test.fns", "account"),), _PLACE
    )
    ingress = ConnectorIngress(
        TypeName("test", "commands"),
        "test.commands.v1/ingress",
        (route,),
        _PLACE,
        "stored_checkpoint:read_commands",
        list(commands),
    )
    return run(
        Module(connector_ingresses=(ingress,)),
        functions(is_broken=is_broken),
        checkpoint,
        clock=clock,
        state_partitions=1,
    )


def read_commands(reading: Reading) -> object:
    """Return the commands in the settings of an ingress as records."""
    return reading.planned(_Commands(reading.ingress.settings), read_task)


class _Commands:
    """A source that reads all commands at once."""

    def __init__(self, commands: Sequence[str]) -> None:
        self._commands = commands

    def initial_offset(self) -> Offset:
        return {"records": 0}

    def latest_offset(self, _start: Offset) -> Offset:
        return {"records": len(self._commands)}

    def tasks(self, start: Offset, end: Offset) -> Sequence[bytes]:
        numbers = range(start["records"], end["records"])
        return [json.dumps([(number, self._commands[number]) for number in numbers]).encode()]

    def bound(self) -> None:
        """Do nothing: no commands are added."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def read_task(task: bytes) -> Iterator[pa.RecordBatch]:
    """Read the commands of a task."""
    rows = [
        {
            "key": b"Ada",
            "value": StringType.serializer().serialize(command),
            "topic": "commands",
            "partition": 0,
            "offset": number,
            "timestamp": MADE,
            "headers": None,
        }
        for number, command in json.loads(task)
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=RECORDS_ARROW)


def make(checkpoint: Path) -> None:
    """Make a checkpoint: the second run ends because a payment cannot be handled."""
    step(checkpoint, ["remind"], StoppedClock())
    with suppress(FunctionError):
        step(checkpoint, ["remind", "pay"], StoppedClock(), is_broken=True)
    for name in _LOCKS:
        (checkpoint / name).unlink()


if __name__ == "__main__":
    folder = CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}"
    if folder.exists():
        sys.exit(f"{folder} exists; a checkpoint in another format gets a folder of its own")
    make(folder)
