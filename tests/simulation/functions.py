# SPDX-License-Identifier: Apache-2.0
"""Functions that act differently at every attempt, and keep a journal."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import timedelta

import attrs

from simulation.chaos import Chaos
from simulation.world import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    FAR,
    PARTITIONS,
    POISON,
    SLOW,
    STATELESS,
    Attempts,
    Cancelled,
    Journal,
    Received,
    Sent,
)
from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    OnFailure,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.engine.address_keys import address_key

FUEL = 2
"""How many calls long a chain gets."""
_IDS = 2
_NAMES = ("a", "b", "relay", "relay")
_MORE_NAMES = ("a", "relay", "far", "far")
_COROUTINES = ("slow", "slow", "slow", "swift")
_WAITS = (0, 0, 0.05, 0.3)
"""Seconds that a coroutine waits before it acts."""
_DELAYS = (0, 100, 150, 700, 5000, 3_600_000)
_HOUR = 3_600_000
LIFETIMES = {"short": timedelta(seconds=1), "long": timedelta(hours=1)}
"""Values that expire, with the times after which they do."""
_RECENT = 4
"""So many batches back functions remember what they could cancel."""


class Actor:
    """The actions of the functions of a task."""

    def __init__(
        self,
        chaos: Chaos,
        attempts: Attempts,
        *,
        batch: int,
        partition: int,
        begun: int,
        worker_time: int,
        has_endpoint: bool,
        has_calls: bool,
        has_changes: bool,
        expiry: random.Random | None,
        poisonous: float,
    ) -> None:
        self.journal = Journal()
        self._chaos = chaos
        self._attempts = attempts
        self._batch = batch
        self._partition = partition
        self._names = (_MORE_NAMES if has_endpoint else _NAMES) + _COROUTINES * has_calls
        self._names += ("swift",) * 8 * has_changes
        self._expiry = expiry
        self._poisonous = poisonous
        self._before = Journal()
        """The actions of functions in the same task or call so far, if they are not this actor's."""
        self._begun = begun
        self._now = min(max(worker_time, begun), begun + _HOUR)

    def elsewhere(self) -> Actor:
        """Return who acts for a request of the task, of which nobody may hear."""
        return self._with(Journal())

    @property
    def journal_of_call(self) -> Journal:
        """The journal of the present call, if it has its own, or of the task."""
        return _journal.get() or self.journal

    def in_call(self) -> Actor:
        """Return who acts in the present call of a coroutine function."""
        return self._with(self.journal_of_call)

    async def wait(self) -> None:
        """Let a call take a while, in which others go on."""
        await asyncio.sleep(self._chaos.random.choice(_WAITS))

    def _with(self, journal: Journal) -> Actor:
        actor = copy(self)
        actor._before, actor.journal = self.journal_of_call, journal
        return actor

    def applied(self, caller: Actor, journal: Journal) -> Journal:
        """Return the actions of a call that has left, as they come true when this actor's task applies its result.

        Args:
            caller: who acted in the task that the call has left.
            journal: the actions of the call.
        """
        reading, since = len(self._chaos.clock.readings), max(self._now - caller._now, 0)
        sent = []
        for each in journal.sent:
            message = attrs.evolve(each, batch=self._batch, reading=reading)
            if each.due:
                delay = each.due - caller._now
                is_set_back = self._now < caller._now
                floor = self._begun + delay if is_set_back else each.floor
                due = self._now + max(delay - since, 0)
                message = attrs.evolve(message, due=due, floor=floor)
            sent.append(message)
        cancelled = [attrs.evolve(each, reading=reading) for each in journal.cancelled]
        return Journal(sent, journal.received, cancelled, journal.egress)

    def act(self, ctx: Context, text: str) -> None:
        """Do something for a message."""
        key, choose = address_key(ctx.address), self._chaos.random.choice
        caller = address_key(ctx.caller) if ctx.caller else b""
        uid, fuel = text.split()
        reading = len(self._chaos.clock.readings)
        self.journal.received.append(Received(uid, caller, key, reading))
        for _ in range(choose([0, 1, 2, 2, 3])):
            kind = choose(["egress", "send", "send", "after", "after", "token", "cancel"])
            if kind == "egress":
                self._emit(ctx)
            elif kind == "cancel":
                self._cancel(ctx, key)
            elif int(fuel):
                self._send(ctx, key, kind, int(fuel) - 1)

    def mark(self, ctx: Context) -> None:
        """Write some of the values that expire, if there are any."""
        if self._expiry is not None:
            for name in self._expiry.choice([(), ("short",), ("long",), LIFETIMES]):
                setattr(ctx.storage, name, 1)

    def _emit(self, ctx: Context) -> None:
        egress = self._chaos.random.choice([*EXACTLY_ONCE, AT_LEAST_ONCE])
        for _ in range(self._chaos.random.choice([1, 1, 4])):
            sender = self._sender(ctx)
            value = f"{sender} {self._batch} {self._chaos.number()}"
            self.journal.egress.append((egress, value.encode()))
            ctx.send_egress(KafkaEgressMessage(egress, topic="topic", value=value))

    def _sender(self, ctx: Context) -> int:
        """Return the number of a sender; the records of one sender have an order."""
        key = address_key(ctx.address)
        if ctx.address.name == "far":
            return PARTITIONS + int(ctx.address.id)
        if ctx.address.name == "slow":
            return zlib.crc32(key)
        if ctx.address.name == "swift":  # which may run in the task of its caller
            caller = address_key(ctx.caller) if ctx.caller else b""
            return zlib.crc32(b"%s %s %d" % (key, caller, self._partition))
        return self._partition

    def _send(self, ctx: Context, key: bytes, kind: str, fuel: int) -> None:
        choose, reading = self._chaos.random.choice, len(self._chaos.clock.readings)
        name = choose(self._names)
        ids = {"far": FAR, "slow": SLOW}.get(name)
        id_ = str(choose(ids) if ids else self._chaos.random.randrange(_IDS))
        uid, target = f"m{self._chaos.number()}", f"{id_}\0t.fns/{name}".encode()
        if name == "far" and kind != "token" and self._chaos.random.random() < self._poisonous:
            uid += POISON
        message = message_builder(f"t.fns/{name}", id_, str_value=f"{uid} {fuel}")
        if kind == "send":
            self.journal.sent.append(Sent(uid, key, target, self._batch, reading))
            ctx.send(message)
            if name in {"far", "slow"} and choose([False, True]):
                self._send(ctx, key, kind, 0)
            return
        base, token = choose(_DELAYS), kind == "token"
        for more in (0,) if token else choose([(0,), (0,), (70, 0, 0)]):
            delay = base + more
            due, floor = self._now + delay, self._begun + delay
            sent = Sent(uid, key, target, self._batch, reading, due, floor, token)
            self.journal.sent.append(sent)
            ctx.send_after(timedelta(milliseconds=delay), message, uid if token else "")
            uid = f"m{self._chaos.number()}"
            message = message_builder(f"t.fns/{name}", id_, str_value=f"{uid} 0")

    def _cancel(self, ctx: Context, key: bytes) -> None:
        """Cancel a message that an address of the same id has sent."""
        recent = [self._attempts[batch] for batch in sorted(self._attempts)[-_RECENT:]]
        journals = [journal for attempt in recent for journal in attempt.journals.values()]
        id_ = key.partition(b"\0")[0]
        found = [
            sent
            for journal in (*journals, self._before, self.journal)
            for sent in journal.sent
            if sent.token and sent.sender.partition(b"\0")[0] == id_
        ]
        if found:
            sent = self._chaos.random.choice(found)
            is_own = sent.sender == key and not key.endswith(STATELESS)
            is_sure = sent.batch < self._batch or is_own
            reading = len(self._chaos.clock.readings)
            self.journal.cancelled.append(Cancelled(sent.uid, reading, is_sure))
            ctx.cancel_delayed_message(sent.uid)


_actor: ContextVar[Actor] = ContextVar("simulation_actor")
_journal: ContextVar[Journal | None] = ContextVar("simulation_journal", default=None)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Let an actor play all functions."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def begin_journal() -> Journal:
    """Give the present call a journal of its own."""
    journal = Journal()
    _journal.set(journal)
    return journal


functions = StatefulFunctions()
changed_functions = StatefulFunctions()
"""The functions of runs in which ``swift`` is a plain one."""


def _count(ctx: Context, message: Message) -> None:
    ctx.storage.count = (ctx.storage.count or 0) + 1
    _actor.get().act(ctx, message.as_string())


def _mark(ctx: Context, message: Message) -> None:
    _actor.get().mark(ctx)
    _count(ctx, message)


def _relay(ctx: Context, message: Message) -> None:
    _actor.get().act(ctx, message.as_string())


async def _slow(ctx: Context, message: Message) -> None:
    count = (ctx.storage.count or 0) + 1
    actor = _actor.get().in_call()
    await actor.wait()
    ctx.storage.count = count
    actor.act(ctx, message.as_string())


async def _swift(ctx: Context, message: Message) -> None:
    actor = _actor.get().in_call()
    await actor.wait()
    actor.act(ctx, message.as_string())


for _functions, _kind in ((functions, _swift), (changed_functions, _relay)):
    _specs = [ValueSpec(name, IntType, expire_after_write=LIFETIMES[name]) for name in LIFETIMES]
    for _name in ("a", "b"):
        _functions.bind(f"t.fns/{_name}", specs=[ValueSpec("count", IntType), *_specs])(_mark)
    _functions.bind("t.fns/relay")(_relay)
    _functions.bind(
        "t.fns/slow", specs=[ValueSpec("count", IntType)], on_failure=OnFailure.SKIP, timeout=None
    )(_slow)
    _functions.bind("t.fns/swift", on_failure=OnFailure.SKIP, timeout=None)(_kind)


far_functions = StatefulFunctions()
"""Those of the server."""
far_functions.bind("t.fns/far", specs=[ValueSpec("count", IntType)])(_count)
