# SPDX-License-Identifier: Apache-2.0
"""The parts of the driver, through as many micro-batches, without Spark, Kafka, and waits.

One process runs the real feedback source, dispatcher, outbox, publisher, retention, wheel, playground
store, file egress, sources of files and of Kinesis, and client of an endpoint, in memory where there is a
file system for it. It counts the blocks of Python's heap exactly, so that an object that is kept in every
hundredth micro-batch shows.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from local_servers import free_port

from endurance.sampling import folder_figures, process_figures
from endurance.sources import Outside
from endurance.verdict import LIMITS, Series, Verdict, verdict
from statefun import (
    Context,
    Message,
    OnFailure,
    Retry,
    StatefulFunctions,
    StringType,
    ValueSpec,
    egress_message_builder,
    make_json_type,
    message_builder,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Columns, Group
from statefun.engine.program import Program
from statefun.engine.sinks import sinks_of
from statefun.module.loader import parse_module
from statefun.module.model import Module
from statefun.protocol.runtime_pb2 import Manifest, Segment
from statefun.remote.endpoint_functions import with_endpoints
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.outbox import Leftovers, Outbox, effect_stream
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.egress.connector_lanes import ConnectorLaneFactory
from statefun.runtime.ingress.feedback import FeedbackReader
from statefun.runtime.ingress.feedback_tasks import read_feedback_task
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX, PlaygroundInbox
from statefun.runtime.playground.server import Playground
from statefun.runtime.preflight.recovery import Succession
from statefun.runtime.release.delivery import Delivery
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.rows.effect_streams import EGRESS_SCHEMA, MESSAGE_SCHEMA, arrow_stream
from statefun.runtime.settings import Settings
from statefun.sdk.failure import FailurePolicy
from statefun.sdk.times import in_milliseconds

MODULE = """
kind: io.statefun.file.v1/egress
spec: {{id: parts/files, folder: '{folder}/out', rollEvery: 0s}}
---
kind: io.statefun.playground.v1/ingress
spec: {{port: {port}}}
---
kind: io.statefun.playground.v1/egress
spec: {{port: {port}, topics: [out]}}
"""
RECORD = make_json_type("io.statefun.playground/EgressRecord")
LINE = make_json_type("parts/line")
STEP = timedelta(seconds=2)
"""The time from one micro-batch to the next, by the clock that the parts see."""
SAMPLES = 200
_KEPT = 100
"""Spark keeps the logs of so many micro-batches."""
_RETRY: FailurePolicy = Retry(attempts=2, backoff=timedelta(seconds=1), then=OnFailure.SKIP)


class _Clock:
    """Time that passes with micro-batches."""

    def __init__(self) -> None:
        self.time = 1_800_000_000_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> int:
        return self.time


def functions() -> StatefulFunctions:
    """Return functions that use everything."""
    registry = StatefulFunctions()
    ttl = timedelta(seconds=2)

    @registry.bind(
        "parts/f",
        [ValueSpec("last", StringType, expire_after_write=ttl)],
        on_failure=_RETRY,
    )
    def f(ctx: Context, message: Message) -> None:
        text = message.as_string()
        if ctx.caller is not None:
            if text.endswith("7"):
                raise ValueError(text)
            return
        ctx.storage.last = text
        ctx.send(message_builder("parts/f", "0", str_value=text))
        ctx.send(message_builder("parts/kept", text[-1], str_value=text))
        later = message_builder("parts/f", text, str_value=text)
        ctx.send_after(timedelta(seconds=1), later)
        ctx.send_after(timedelta(minutes=5), later)
        ctx.send_after(timedelta(seconds=3), later, cancellation_token=text)
        if text.endswith(("3", "5")):
            ctx.cancel_delayed_message(text)
        ctx.send(egress_message_builder("parts/files", {"text": text}, LINE))
        record = {"topic": "out", "payload": text}
        ctx.send(egress_message_builder("io.statefun.playground/egress", record, RECORD))

    lives = {"short": timedelta(seconds=10), "long": timedelta(days=30)}
    specs = [ValueSpec(name, StringType, expire_after_call=life) for name, life in lives.items()]

    @registry.bind("parts/kept", specs)
    def kept(ctx: Context, message: Message) -> None:
        """Keep a value that lives on, and one that expires before the next call."""
        ctx.storage.long = ctx.storage.short = message.as_string()

    return registry


class Driver:
    """The driver's parts, and Spark's logs.

    Args:
        folder: for everything.
        module: with the egresses.
        store: of the playground.
        outside: what is read, and an endpoint.
    """

    def __init__(
        self, folder: Path, module: Module, store: PlaygroundStore, outside: Outside
    ) -> None:
        self._checkpoint = Folder.at(folder / "checkpoint")
        self._checkpoint.write("metadata", b'{"id":"parts"}')
        self._out = folder / "out"
        self._store = store
        self._outside = outside
        self._clock = _Clock()
        self._program = Program(with_endpoints(functions(), module), sinks_of(module))
        self._outbox = Outbox(self._checkpoint)
        inbox = PlaygroundInbox(store, WaitingGauge(self._checkpoint), self._clock)
        self._reader = FeedbackReader(self._checkpoint, self._clock, {PLAYGROUND_INBOX: inbox})
        self._delivery = Delivery(self._checkpoint)
        self._succession = Succession(-1)
        settings = Settings.resolve({}, None, checkpoint=self._checkpoint.location)
        self._publisher = Publisher(
            "run",
            [
                ConnectorLaneFactory(egress, self._checkpoint, "run")
                for egress in module.connector_egresses
            ],
            settings,
            cast("Any", SimpleNamespace(commit=lambda batch: None)),
            Retention(self._checkpoint),
        )
        self._publisher.start(Leftovers((), ()))
        self._states: dict[bytes, bytes] = {}
        self._start = self._reader.initial_offset()

    def run(self, batch: int) -> None:
        """Run a micro-batch."""
        self._clock.time += in_milliseconds(STEP)
        self._succession.check(batch)
        self._store.post(b"%d\0parts/f" % batch, StringType.typename, _encoded(str(batch)))
        for text in self._outside.look(batch):
            target = f"{text[-1]}\0served.parts/f".encode()
            self._store.post(target, StringType.typename, _encoded(text))
        end = self._reader.latest_offset(self._start)
        self._log("offsets", batch, f"v1\n{{}}\n{json.dumps(end)}")
        effects = Effects()
        dispatcher = Dispatcher(
            self._program,
            BatchClock(self._clock, self._clock.now()),
            batch=batch,
            delivered_up_to=self._delivery.delivered_before(batch),
            concurrency=1,
            immediate=1000,
        )
        for group in dispatcher.dispatch(self._groups(end), effects):
            stored = group.values.encoded()
            self._states.pop(group.key, None)
            if stored is not None:
                self._states[group.key] = stored
        dispatcher.summary()
        segments = [_segment(effects)] if effects else []
        self._outbox.stage(
            Manifest(batch=batch, query_id="parts", run_id="run", segments=segments, lanes=1)
        )
        self._publisher.add(batch, has_effects=True)
        self._log("commits", batch, "v1\n{}")
        self._start = end
        self._take()

    def figures(self, batch: int) -> dict[str, float]:
        """Return what the driver takes, when all is published."""
        while self._publisher._oldest() <= batch:  # noqa: SLF001 - who else would know
            time.sleep(0.001)
        self._take()
        gc.collect()
        return {
            "driver blocks": sys.getallocatedblocks(),
            "state addresses": len(self._states),
            **{f"driver {what}": value for what, value in process_figures("self").items()},
            **self._outside.figures(),
            **{
                f"checkpoint {what}": value
                for what, value in folder_figures(Path(self._checkpoint.location)).items()
            },
        }

    def close(self) -> None:
        """Stop publishing."""
        self._publisher.stop()

    def _log(self, name: str, batch: int, text: str) -> None:
        folder = self._checkpoint.child(name)
        folder.write(str(batch), text.encode())
        if batch >= _KEPT:
            folder.remove(str(batch - _KEPT))

    def _take(self) -> None:
        while (record := self._store.take("out", 0)) is not None:
            self._store.taken(record)
        for path in self._out.glob("*/part-*") if self._out.exists() else ():
            path.unlink()
        for path in self._out.glob("part-*") if self._out.exists() else ():
            path.unlink()

    def _groups(self, end: dict[str, Any]) -> Iterator[Group]:
        names = ("target", "timestamp", "offset", "caller", "typename", "value")
        rows: list[tuple[Any, ...]] = []
        for task in self._reader.tasks(self._start, end):
            for batch in read_feedback_task(self._outbox, task):
                rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        rows.sort(key=lambda row: (row[0], row[1] is not None, row[1], row[2]))
        for key, own in groupby(rows, itemgetter(0)):
            _, _, _, caller, typename, value = zip(*own, strict=True)
            none, zeros = [None] * len(value), [0] * len(value)
            columns = Columns(caller, typename, value, none, zeros, cell=lambda *_: None)
            yield Group(key, columns, 0, len(value), AddressValues(self._states.get(key)))


def _segment(effects: Effects) -> Segment:
    segment = Segment(buckets=sorted(effects.buckets))
    if effects.messages:
        count = len(effects.messages)
        segment.messages.CopyFrom(
            effect_stream(arrow_stream(effects.messages.take(), MESSAGE_SCHEMA), count)
        )
    for name, rows in effects.egress.items():
        count = len(rows)
        segment.egress[name].CopyFrom(
            effect_stream(arrow_stream(rows.take(), EGRESS_SCHEMA), count)
        )
    return segment


def _encoded(text: str) -> bytes:
    return bytes(StringType.serializer().serialize(text))


def drive(batches: int, show: Callable[[str], None] = lambda _: None) -> Sequence[Verdict]:
    """Drive the parts through so many micro-batches; return what is known of each figure."""
    memory = "/dev/shm"  # noqa: S108 - a folder of its own within
    place = memory if Path(memory).is_dir() and os.access(memory, os.W_OK) else None
    every = max(1, batches // SAMPLES)
    # Without objects: what is measured is not to grow by being measured.
    found: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
    numbers = array("d")
    with tempfile.TemporaryDirectory(prefix="statefun-parts-", dir=place) as name:
        folder = Path(name)
        (folder / "checkpoint").mkdir()
        (folder / "out").mkdir()
        outside = Outside(folder / "outside")
        text = MODULE.format(folder=folder, port=free_port()) + outside.endpoint
        module = parse_module(text, str(folder / "module.yaml"))
        with (
            closing(outside),
            closing(PlaygroundStore(Folder.at(folder / "checkpoint"))) as store,
            Playground(module, functions(), store),
            closing(Driver(folder, module, store, outside)) as driver,
        ):
            gc.freeze()  # what is there already need not be looked at for each sample
            for batch in range(batches):
                driver.run(batch)
                if batch % every == every - 1:
                    numbers.append(batch)
                    for what, value in driver.figures(batch).items():
                        found[what].append(value)
                    show(f"{batch:,} of {batches:,} micro-batches")
    series = [
        Series(what, LIMITS[what.rpartition(" ")[2]], numbers, values)
        for what, values in found.items()
    ]
    gc.unfreeze()
    return [each for each in map(verdict, series) if each]
