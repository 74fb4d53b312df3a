# SPDX-License-Identifier: Apache-2.0
"""Functions whose effects nobody can predict, and a driver that dies where it is told to.

Each of 128 functions counts its messages, and chains a random token per message into a digest
that it keeps. It sends count and token to the egress, and passes the message on to another
function, now or a moment later. Asked for an audit, it says its count and digest: what the
egress topic holds has to be a chain with exactly that end.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from statefun import (
    Context,
    KafkaEgressMessage,
    LongType,
    Message,
    SimpleType,
    StatefulFunctions,
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.runtime.application import Application
from statefun.runtime.egress.kafka import AtLeastOnce, ExactlyOnce, Unconfirmed
from statefun.runtime.egress.publisher import Publisher
from statefun.runtime.outbox import Outbox
from statefun.runtime.retention import Retention
from statefun.runtime.settings import Settings
from statefun.runtime.timers import TimerLog
from statefun.spec import parse_module

FUNCTIONS = 128
TEXT = SimpleType("soak/text", str.encode, bytes.decode)


def chained(digest: str, token: str) -> str:
    """Return the digest of a chain that is longer by a token."""
    return hashlib.sha256(f"{digest} {token}".encode()).hexdigest()[:16]


def functions(prefix: str, crash_inside: int) -> StatefulFunctions:
    """Return the functions; the driver dies inside of one of so many calls, if any.

    Args:
        prefix: of the names of topics.
        crash_inside: one of how many; 0 for none.
    """
    audits, out = f"{prefix}audits", f"{prefix}out"
    registry = StatefulFunctions()
    driver = os.getpid()
    specs = [ValueSpec("count", LongType), ValueSpec("digest", StringType)]

    @registry.bind("soak/*", specs=specs)
    def handle(ctx: Context, message: Message) -> None:
        text = message.as_type(TEXT)
        me = ctx.address.name
        count, digest = ctx.storage.count or 0, ctx.storage.digest or ""
        if text == "audit":
            if count:
                value = json.dumps([me, count, digest])
                ctx.send(KafkaEgressMessage("soak/audits", topic=audits, key=me, value=value))
            return
        if crash_inside and random.randrange(crash_inside) == 0:
            os.kill(driver, signal.SIGKILL)
        token = uuid.uuid4().hex
        ctx.storage.count, ctx.storage.digest = count + 1, chained(digest, token)
        value = json.dumps([me, count + 1, token])
        ctx.send(KafkaEgressMessage("soak/out", topic=out, key=me, value=value))
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
        target = f"soak/{ctx.address.id}"
        ctx.send(message_builder(target, "x", value=text, value_type=TEXT))

    return registry


def module(address: str, semantic: str, prefix: str) -> str:
    """Return the module file; the audits are always exact."""
    return f"""
kind: io.statefun.kafka.v1/ingress
spec:
  id: soak/in
  address: {address}
  consumerGroupId: {prefix}soak
  startupPosition: {{type: earliest}}
  topics:
    - {{topic: {prefix}in, valueType: soak/text, targets: [soak/entry]}}
---
kind: io.statefun.kafka.v1/egress
spec: {{id: soak/out, address: '{address}', deliverySemantic: {{type: {semantic}}}}}
---
kind: io.statefun.kafka.v1/egress
spec: {{id: soak/audits, address: '{address}', deliverySemantic: {{type: exactly-once}}}}
"""


def die(*_arguments: object) -> None:
    """Be killed, as if from outside."""
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def crash(class_: type, method: str, number: int, *, after: bool) -> None:
    """Let the process die before or after so many calls of a method."""
    original: Callable[..., Any] = getattr(class_, method)
    calls = 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            die()
        result = original(*arguments, **named)
        if calls == number and after:
            die()
        return result

    setattr(class_, method, dying)


def crash_after_write(number: int) -> None:
    """Let the process die when an egress has so many times confirmed what it was given."""
    for class_ in (ExactlyOnce, AtLeastOnce, Unconfirmed):
        crash(class_, "write", number, after=True)


POINTS: dict[str, Callable[[int], None]] = {
    "before staging": lambda n: crash(Application, "_stage", n, after=False),
    "before manifest": lambda n: crash(Outbox, "stage", n, after=False),
    "after manifest": lambda n: crash(Outbox, "stage", n, after=True),
    "before commit log": lambda n: crash(Publisher, "add", n, after=True),
    "after commit log": lambda n: crash(Publisher, "_release", n, after=False),
    "mid-publish": lambda n: crash(AtLeastOnce, "_flush", n, after=False),
    "after produce": lambda n: crash(AtLeastOnce, "_flush", n, after=True),
    "after commit": crash_after_write,
    "before clean-up": lambda n: crash(Retention, "published", n, after=False),
    "after clean-up": lambda n: crash(Retention, "committed", n, after=True),
    "before a timer": lambda n: crash(TimerLog, "add", n, after=False),
    "after a timer": lambda n: crash(TimerLog, "add", n, after=True),
}
"""Where the driver can die, besides inside of a function."""
INSIDE = "inside a function"


def main() -> None:
    """Run as ``options`` in JSON say."""
    options = json.loads(sys.argv[1])
    point, number = options["point"], options["number"]
    if point in POINTS:
        POINTS[point](number)
    settings = Settings.resolve(
        {},
        None,
        checkpoint=options["checkpoint"],
        available_now=options["drain"],
        records_per_batch=options["records_per_batch"],
        egress_lanes=options["lanes"],
        state_partitions=2,
    )
    application = Application(
        parse_module(module(options["address"], options["semantic"], options["prefix"])),
        functions(options["prefix"], 500 * number if point == INSIDE else 0),
        settings,
    )
    application.run()


if __name__ == "__main__":
    main()
