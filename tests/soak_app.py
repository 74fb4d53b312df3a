# SPDX-License-Identifier: Apache-2.0
"""Functions with unpredictable effects, and a driver that dies at a given place.

Each of 128 functions counts its messages, and passes them on to another function, now or a moment
later. What is written into a ledger goes to a function elsewhere, and waits there while its server is
away. Calls of a coroutine function leave their micro-batches, and are lost with processes. Other entries are counted
in windows of event time, which wait for all of these messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import soak_functions
from pyspark import cloudpickle
from soak_functions import FUNCTIONS, LEDGERS, SEMANTICS, SLOW, SPECS, TEXT, WINDOWS, audit, count

from statefun import Context, Message, StatefulFunctions, message_builder, run
from statefun.runtime.checkpoint.outbox import Outbox
from statefun.runtime.checkpoint.timer_log import TimerLog
from statefun.runtime.egress.producers import AtLeastOnce, ExactlyOnce
from statefun.runtime.egress.unconfirmed import Unconfirmed
from statefun.runtime.release.publisher import Publisher
from statefun.runtime.release.retention import Retention
from statefun.runtime.staging import Staging
from statefun.windows import Tumbling, Window, WindowContext, windowed

SHORTEST, TIMES_LONGER = 0.05, 60
"""Seconds of the shortest call of the coroutine function, and how many times as long the longest one is."""
DETACH_AFTER = timedelta(seconds=0.1)

# Workers cannot import modules of tests.
cloudpickle.register_pickle_by_value(soak_functions)  # type: ignore[no-untyped-call] # as pyspark has it


def functions(prefix: str, crash_inside: int) -> StatefulFunctions:
    """Return the functions; the driver dies inside of one of so many calls, if any.

    Args:
        prefix: of the names of topics.
        crash_inside: one of how many; 0 for none.
    """
    registry = StatefulFunctions()
    driver = os.getpid()

    @registry.bind("soak/*", specs=SPECS)
    def handle(ctx: Context, message: Message) -> None:
        text = message.as_type(TEXT)
        me = ctx.address.name
        if text == "audit":
            audit(ctx, prefix, me)
            return
        if crash_inside and random.randrange(crash_inside) == 0:
            os.kill(driver, signal.SIGKILL)
        count(ctx, prefix, me, uuid.uuid4().hex)
        left = int(text) - 1
        if left > 0:
            target = f"soak/f{random.randrange(FUNCTIONS)}"
            following = message_builder(target, "x", value=str(left), value_type=TEXT)
            if random.random() < 0.2:
                ctx.send_after(timedelta(seconds=random.random()), following)
            else:
                ctx.send(following)

    @registry.bind("soak/entry")
    def enter(ctx: Context, message: Message) -> None:
        text = message.as_type(TEXT)
        name = ctx.address.id
        target, id_ = f"soak/{name}", "x"
        if name in LEDGERS:
            target, id_ = "away/ledger", name
        elif name in SLOW:
            target, id_ = "slow/waiter", name
        elif name in WINDOWS:
            target, id_ = "windows/closed" if text == "audit" else "windows/entries", name
        ctx.send(message_builder(target, id_, value=text, value_type=TEXT))

    bind_slow(registry, prefix)
    bind_windows(registry, prefix)
    return registry


def bind_slow(registry: StatefulFunctions, prefix: str) -> None:
    """Add the function whose calls leave their micro-batches; it puts the number of an entry into its token."""

    @registry.bind("slow/waiter", specs=SPECS, detach_after=DETACH_AFTER)
    async def wait(ctx: Context, message: Message) -> None:
        text = message.as_type(TEXT)
        me = ctx.address.id
        if text == "audit":
            audit(ctx, prefix, me)
            return
        await asyncio.sleep(SHORTEST * TIMES_LONGER ** random.random())
        count(ctx, prefix, me, f"{text} {uuid.uuid4().hex}")


class Entries(Window):
    """The entries of a second."""

    count: int = 0


def bind_windows(registry: StatefulFunctions, prefix: str) -> None:
    """Add a function with windows, and one that gets their results: each token begins with the start and the count."""

    def send(ctx: WindowContext, start: str, entries: int) -> None:
        closed = message_builder(
            "windows/closed", ctx.address.id, value=f"{start} {entries}", value_type=TEXT
        )
        ctx.send(closed)

    @windowed("windows/entries", Tumbling(timedelta(seconds=1)), functions=registry)
    def add(ctx: WindowContext, _message: Message, window: Entries) -> None:
        window.count += 1

    @add.on_close
    def close(ctx: WindowContext, window: Entries) -> None:
        send(ctx, f"{ctx.window.start.timestamp():.0f}", window.count)

    @add.on_late
    def miss(ctx: WindowContext, _message: Message) -> None:
        send(ctx, "late", 1)

    @registry.bind("windows/closed", specs=SPECS)
    def closed(ctx: Context, message: Message) -> None:
        text = message.as_type(TEXT)
        me = ctx.address.id
        if text == "audit":
            audit(ctx, prefix, me)
        else:
            count(ctx, prefix, me, f"{text} {uuid.uuid4().hex}")


def module(address: str, prefix: str, port: int) -> str:
    """Return the module file; the audits are always exact.

    Args:
        address: of the broker.
        prefix: of the names of topics.
        port: of the functions elsewhere.
    """
    ingress = f"""
kind: io.statefun.kafka.v1/ingress
spec:
  id: soak/in
  address: {address}
  consumerGroupId: {prefix}soak
  startupPosition: {{type: earliest}}
  eventTime: {{outOfOrder: 1s, idle: 2s, whenAllIdle: follow}}
  topics:
    - {{topic: {prefix}in, valueType: soak/text, targets: [soak/entry]}}
---
kind: io.statefun.endpoints.v2/http
spec:
  functions: away/*
  urlPathTemplate: http://127.0.0.1:{port}/{{function.name}}
  transport: {{timeouts: {{read: 5s}}}}
"""
    egresses = {"audits": "exactly-once"} | {semantic: semantic for semantic in SEMANTICS}
    return ingress + "".join(
        f"""---
kind: io.statefun.kafka.v1/egress
spec: {{id: soak/{name}, address: '{address}', deliverySemantic: {{type: {semantic}}}}}
"""
        for name, semantic in egresses.items()
    )


def die(*_arguments: object) -> None:
    """Be killed, as if from outside."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def crash(class_: type, method: str, number: int, *, after: bool) -> None:
    """Let the process die before or after so many calls of a method of exactly that class."""
    original: Callable[..., Any] = getattr(class_, method)
    calls = 0

    def dying(self: object, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += type(self) is class_
        if calls == number and not after:
            die()
        result = original(self, *arguments, **named)
        if calls == number and after:
            die()
        return result

    setattr(class_, method, dying)


POINTS: dict[str, tuple[type, str, bool]] = {
    "before staging": (Staging, "stage", False),
    "before manifest": (Outbox, "stage", False),
    "after manifest": (Outbox, "stage", True),
    "before commit log": (Publisher, "add", True),
    "after commit log": (Publisher, "_release", False),
    "mid-publish, exactly-once": (ExactlyOnce, "_flush", False),
    "mid-publish, at-least-once": (AtLeastOnce, "_flush", False),
    "mid-publish, none": (Unconfirmed, "write", False),
    "after produce, exactly-once": (ExactlyOnce, "_flush", True),
    "after produce, at-least-once": (AtLeastOnce, "_flush", True),
    "after publish, exactly-once": (ExactlyOnce, "write", True),
    "after publish, at-least-once": (AtLeastOnce, "write", True),
    "after publish, none": (Unconfirmed, "write", True),
    "before clean-up": (Retention, "published", False),
    "after clean-up": (Retention, "committed", True),
    "before a timer": (TimerLog, "add", False),
    "after a timer": (TimerLog, "add", True),
}
"""Where the driver can die, besides inside of a function: a method, and whether after it."""
INSIDE = "inside a function"
OF_PUBLISHING = frozenset(
    name for name, (class_, _, _) in POINTS.items() if issubclass(class_, AtLeastOnce)
)
"""Which of them Python workers pass, not the driver, when there are several lanes."""


def main() -> None:
    """Run as ``options`` in JSON say."""
    options = json.loads(sys.argv[1])
    point, number = options["point"], options["number"]
    if point in POINTS:
        class_, method, after = POINTS[point]
        crash(class_, method, number, after=after)
    folder = Path(options["folder"])
    module_file = folder / "module.yaml"
    module_file.write_text(module(options["address"], options["prefix"], options["port"]))
    with contextlib.suppress(KeyboardInterrupt):
        run(
            module_file,
            options["checkpoint"],
            records_per_batch=options["records_per_batch"],
            egress_lanes=options["lanes"],
            admin=options["admin"],
            state_partitions=2,
            functions=functions(options["prefix"], 500 * number if point == INSIDE else 0),
        )


if __name__ == "__main__":
    main()
