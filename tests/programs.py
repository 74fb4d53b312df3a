# SPDX-License-Identifier: Apache-2.0
"""Functions that carry out the commands in their messages, and a model of the expected result.

A message is a program, a list of commands in JSON:

- ``["add"]`` counts, ``["emit", text]`` writes a record, ``["fail", text]`` raises;
- ``["send", name, id, program]`` sends a program to ``t.fns/<name>/<id>``;
- ``["after", seconds, token, name, id, program]`` does so later, ``["cancel", token]`` not at all;
- ``["note"]`` sets a value that expires a while after it was written, ``["keep"]`` one that
  expires a while after the last call, and ``["look"]`` writes a record of which of them are there.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter, deque
from datetime import timedelta
from typing import Any, Protocol

import attrs
from pyspark import cloudpickle

from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

Program = list[list[Any]]

NAMES = ("a", "b", "patient")
"""The functions that keep state: ``patient`` is a coroutine."""
RELAYS = ("relay", "slow-relay")
"""Those that keep none, and so do not count, note or keep; ``slow-relay`` is a coroutine."""
START = 1_000_000
"""Where tests' clocks begin, in seconds since the epoch."""
LIFETIME = timedelta(seconds=5)
"""Of the values that expire."""


def obedient(topic: str) -> StatefulFunctions:  # noqa: C901 - a branch for each command
    """Return the functions; their records go to ``topic``.

    A record is the list of address, caller, text, count and number; the number tells how many
    messages the caller had sent before, if it keeps state and the message was not delayed.
    """
    functions = StatefulFunctions()
    specs = [
        ValueSpec("count", IntType),
        ValueSpec("sent", IntType),
        ValueSpec("note", IntType, expire_after_write=LIFETIME),
        ValueSpec("kept", IntType, expire_after_call=LIFETIME),
    ]

    def obey(ctx: Context, message: Message) -> None:  # noqa: C901 - see above
        number, program = received(message)
        keeps_state = ctx.address.name not in RELAYS
        sent = (ctx.storage.sent or 0) if keeps_state else None
        for command, *arguments in program:
            if command == "add":
                ctx.storage.count = (ctx.storage.count or 0) + 1
            elif command == "emit":
                ctx.send(record(ctx, number, arguments[0]))
            elif command == "send":
                ctx.send(to(arguments, sent))
                sent = None if sent is None else sent + 1
            elif command == "after":
                seconds, token, *rest = arguments
                ctx.send_after(timedelta(seconds=seconds), to(rest, None), token)
            elif command == "cancel":
                ctx.cancel_delayed_message(arguments[0])
            elif command == "note":
                ctx.storage.note = 1
            elif command == "keep":
                ctx.storage.kept = 1
            elif command == "look":
                there = [name for name in ("note", "kept") if getattr(ctx.storage, name)]
                ctx.send(record(ctx, number, there))
            elif command == "fail":
                raise ValueError(arguments[0])
        if sent:
            ctx.storage.sent = sent

    def record(ctx: Context, number: int | None, text: Any) -> KafkaEgressMessage:
        caller = str(ctx.caller) if ctx.caller else None
        count = None if ctx.address.name in RELAYS else ctx.storage.count
        value = json.dumps([str(ctx.address), caller, text, count, number])
        return KafkaEgressMessage("test/out", topic=topic, key="k", value=value)

    def to(target: list[Any], number: int | None) -> Message:
        name, id_, program = target
        return message_builder(f"t.fns/{name}", id_, str_value=json.dumps([number, program]))

    def received(message: Message) -> tuple[int | None, Program]:
        if message.raw_value().startswith(b"["):  # from Kafka, without a wrapper
            return None, json.loads(message.raw_value())
        number, program = json.loads(message.as_string())
        return number, program

    @functions.bind("t.fns/*", specs)
    def plain(ctx: Context, message: Message) -> None:
        obey(ctx, message)

    @functions.bind("t.fns/patient", specs)
    async def patient(ctx: Context, message: Message) -> None:
        obey(ctx, message)

    @functions.bind("t.fns/relay")
    def relay(ctx: Context, message: Message) -> None:
        obey(ctx, message)

    @functions.bind("t.fns/slow-relay")
    async def slow_relay(ctx: Context, message: Message) -> None:
        obey(ctx, message)

    return functions


@attrs.define
class _Sent:
    target: str
    caller: str | None
    program: Program


class Model:
    """A sequential interpreter: one message after the other, and the time set from outside."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By address."""
        self.emitted: Counter[str] = Counter()
        """Address, caller and text, since the last step."""
        self.commands = 0
        """How many were carried out."""
        self._senders: set[str] = set()
        self._notes: dict[str, float] = {}
        self._kept: dict[str, float] = {}
        self._delayed: list[tuple[float, _Sent]] = []
        self._tokens: dict[tuple[str, str], _Sent] = {}

    def step(self, roots: list[tuple[str, Program]], now: float) -> None:
        """Carry out all commands due at that time; ``roots`` are ids of ``a`` and programs."""
        self.emitted.clear()
        waiting = deque(_Sent(f"t.fns/a/{id_}", None, program) for id_, program in roots)
        while waiting or self._release(waiting, now):
            message = waiting.popleft()
            self._expire(now)
            if message.target in self._kept:
                self._kept[message.target] = now + LIFETIME.total_seconds()
            for command in message.program:
                self._obey(command, message, waiting, now)
        self._expire(now)

    def values(self, address: str) -> list[str]:
        """Return the names of the expiring values that an address has."""
        return ["note"] * (address in self._notes) + ["kept"] * (address in self._kept)

    def addresses(self) -> set[str]:
        """Return the addresses that have any state."""
        return {*(+self.counts), *self._senders, *self._notes, *self._kept}

    def _release(self, waiting: deque[_Sent], now: float) -> bool:
        due = [each for each in self._delayed if each[0] <= now]
        self._delayed = [each for each in self._delayed if each[0] > now]
        waiting.extend(message for _, message in due)
        return bool(due)

    def _expire(self, now: float) -> None:
        for values in (self._notes, self._kept):
            for address in [address for address, time in values.items() if time <= now]:
                del values[address]

    def _obey(self, command: list[Any], message: _Sent, waiting: deque[_Sent], now: float) -> None:
        self.commands += 1
        address = message.target
        id_ = address.rpartition("/")[2]
        kind, *arguments = command
        if kind == "add":
            self.counts[address] += 1
        elif kind == "emit":
            self.emitted[f"{address} {message.caller} {arguments[0]}"] += 1
        elif kind == "send":
            name, target, program = arguments
            if address.split("/")[1] not in RELAYS:
                self._senders.add(address)
            waiting.append(_Sent(f"t.fns/{name}/{target}", address, program))
        elif kind == "after":
            seconds, token, name, target, program = arguments
            later = _Sent(f"t.fns/{name}/{target}", address, program)
            self._delayed.append((now + seconds, later))
            if token:
                self._tokens[id_, token] = later
        elif kind == "cancel":
            cancelled = self._tokens.pop((id_, arguments[0]), None)
            self._delayed = [each for each in self._delayed if each[1] is not cancelled]
        elif kind == "note":
            self._notes[address] = now + LIFETIME.total_seconds()
        elif kind == "keep":
            self._kept[address] = now + LIFETIME.total_seconds()


class Generator:
    """Makes random programs whose outcome does not depend on what the contract leaves open."""

    def __init__(self, seed: int, ids: list[str], depth: int) -> None:
        self._random = random.Random(seed)
        self._ids = ids
        self._depth = depth
        self._tokens = itertools.count()
        self._postponed = 0  # while making a part of a delayed program
        self.long: list[tuple[str, str]] = []
        """Ids and the tokens that they have used for long delays, and not cancelled."""

    def roots(self, count: int) -> list[tuple[str, Program]]:
        """Return programs for ``a``, by id."""
        ids = self._random.choices(self._ids, k=count)
        return [(id_, self._program("a", id_, self._depth)) for id_ in ids]

    def cancellations(self) -> list[tuple[str, Program]]:
        """Return programs that cancel about half of their long delays."""
        self._random.shuffle(self.long)
        half = len(self.long) // 2
        cancelled, self.long = self.long[:half], self.long[half:]
        return [(id_, [["cancel", token]]) for id_, token in cancelled]

    def _program(self, name: str, id_: str, depth: int) -> Program:
        choices = ["emit", *["send", "after"] * bool(depth)]
        if name in NAMES:
            choices += ["add", "add", "note", "keep"]
        program: Program = []
        for kind in self._random.choices(choices, k=self._random.randint(1, 5)):
            if kind == "emit":
                program.append([kind, self._random.randint(0, 9)])
            elif kind == "send":
                program.append([kind, *self._target(name, id_, depth)])
            elif kind == "after":
                program += self._delayed(name, id_, depth)
            else:
                program.append([kind])
        return program

    def _target(self, name: str, id_: str, depth: int) -> tuple[str, str, Program]:
        if self._random.random() > 0.2:  # sometimes to itself
            name, id_ = self._random.choice(NAMES + RELAYS), self._random.choice(self._ids)
        return name, id_, self._program(name, id_, depth - 1)

    def _delayed(self, name: str, id_: str, depth: int) -> Program:
        """Delay a program that has effects, and perhaps cancel it: here, or by another type."""
        seconds = self._random.choice([0, 1, 25])
        token = f"t{next(self._tokens)}" if seconds and self._random.random() < 0.7 else ""
        self._postponed += 1
        to_name, to_id, program = self._target(name, id_, depth)
        self._postponed -= 1
        delayed = [["after", seconds, token, to_name, to_id, [["emit", token], *program]]]
        if token and self._random.random() < 0.4:
            cancel: Program = [["cancel", token]]
            by_other = ["send", self._random.choice(NAMES + RELAYS), id_, cancel]
            return [*delayed, self._random.choice([*cancel, by_other])]
        if token and seconds == 25 and not self._postponed:
            self.long.append((id_, token))
        return delayed


class Stepping(Protocol):
    """An application that obeys, run step by step."""

    def step(self, roots: list[tuple[str, Program]], now: float, **options: Any) -> list[list[Any]]:
        """Send programs, run until all is done, and return the new records, in order."""

    def addresses(self) -> set[str]:
        """Return the addresses that have state."""

    def has_timers(self) -> bool:
        """Return whether a delayed message waits."""


def follow(
    system: Stepping,
    seed: int,
    ids: list[str],
    *,
    depth: int,
    roots: int,
    steps: int,
    immediate: int,
) -> int:
    """Drive random programs through model and system; return how many commands there were."""
    generator, model = Generator(seed, ids, depth), Model()
    everybody = [(name, id_) for name in NAMES for id_ in ids]
    ask: Program = [["send", *somebody, [["look"], ["emit", "?"]]] for somebody in everybody]
    numbers: dict[tuple[str, str], list[int]] = {}

    def step(roots: list[tuple[str, Program]], now: float) -> list[list[Any]]:
        """Take a step of both, and compare what they emit."""
        model.step(roots, now)
        records = system.step(
            roots,
            now,
            records_per_batch=max(5, len(roots) // 3),
            immediate_messages=immediate,
        )
        for target, caller, _, _, number in records:
            if number is not None:
                numbers.setdefault((caller, target), []).append(number)
        texts = Counter(
            f"{target} {caller} {text}"
            for target, caller, text, _, _ in records
            if not isinstance(text, list)
        )
        assert texts == model.emitted
        return records

    for now in range(START, START + 10 * steps, 10):
        cancelling = generator.cancellations()
        step([*cancelling, *generator.roots(roots)], now)
        asked = step([("asker", ask)], now)
        values = {target: text for target, _, text, _, _ in asked if isinstance(text, list)}
        counts = {target: count for target, _, text, count, _ in asked if text == "?"}
        assert len(values) == len(counts) == len(everybody)
        assert {target: model.values(target) for target in values} == values
        assert {target: count for target, count in counts.items() if count} == model.counts
    for number in range(depth + 2):  # what is delayed may delay again; then values expire
        step([], START + 10 * steps + 40 * number)
    assert system.addresses() == model.addresses()
    assert not system.has_timers()
    assert all(sent == sorted(sent) for sent in numbers.values()), "FIFO per sender and target"
    return model.commands
