# SPDX-License-Identifier: Apache-2.0
"""The functions of a program, which write what they do into a topic."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from event_time_model.programs import ROWS, STREAMS, Program
from statefun import (
    Address,
    Context,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    StatefulFunctions,
)
from statefun.joins import Table, joined, joined_as_of
from statefun.windows import Window, WindowContext, windowed

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = 3100
"""By how much messages with a timer are delayed, in milliseconds."""
_MILLISECOND = timedelta(milliseconds=1)
_OUT = "test/out"


@dataclass
class Count:
    """A record that windows collect."""

    number: int


@dataclass
class Left:
    """A record of the first stream of joins, which looks a row of the table up as well."""

    number: int


@dataclass
class Right:
    """A record of the second stream of joins."""

    number: int


@dataclass
class Row:
    """A row of the table."""

    number: int


class Separate(Window):
    """The records of a window, by their numbers."""

    numbers: list[int] | None = None


class Sharing(Separate):
    """The same for windows that share panes, and sessions that are joined."""

    def merge(self, later: Sharing) -> None:
        """Add the records of a later part."""
        self.numbers = [*(self.numbers or []), *(later.numbers or [])]


def millis(time: datetime | None) -> int | None:
    """Return the milliseconds since the start."""
    return None if time is None else (time - START) // _MILLISECOND


def _note(ctx: Context, what: str, *details: Any) -> None:
    value = json.dumps([what, ctx.address.id, millis(ctx.watermark), *details])
    ctx.send(KafkaEgressMessage(_OUT, topic="journal", value=value))


def functions_of(program: Program) -> StatefulFunctions:
    """Return the functions of a program."""
    functions = StatefulFunctions()
    _relay(functions)
    _windows(functions, program)
    _joins(functions, program)
    table = Table("test/table", Row, timeout=None, functions=functions)

    @table.join
    def look_up(ctx: Context, left: Left, row: Row | None) -> None:
        _note(ctx, "seen", left.number, None if row is None else row.number)

    @table.on_change
    def change(ctx: Context, row: Row | None) -> None:
        _note(ctx, "row", None if row is None else row.number)

    return functions


def _arrive(ctx: Context, number: int, role: str, key: str) -> None:
    """Send a record to its functions."""
    if role == "count":
        ctx.send(Address("test/windows", key), Count(number))
        return
    value = Left(number) if role == "left" else Right(number)
    for name in ("pairs", "prices", "table")[: 3 if role == "left" else 2]:
        ctx.send(Address(f"test/{name}", key), value)


def _go_on(ctx: Context, number: int, role: str, key: str, hops: list[str]) -> None:
    """Send a record to where it goes next."""
    if not hops:
        _arrive(ctx, number, role, key)
        return
    hop, *rest = hops
    text = json.dumps([number, role, key, rest])
    match hop:
        case "ring":
            ctx.send(Address("test/relay", f"{key} {number} {len(rest)}"), text)
        case "self":
            ctx.send(ctx.address, text)
        case "slow":
            ctx.send(Address("test/slow", key), text)
        case "later":
            assert ctx.event_time is not None
            ctx.send_at(ctx.event_time + LATER * _MILLISECOND, ctx.address, text)
        case _:
            ctx.send_after(LATER * _MILLISECOND, ctx.address, text)


def _relay(functions: StatefulFunctions) -> None:
    @functions.bind("test/relay", timeout=None)
    def relay(ctx: Context, text: str) -> None:
        _go_on(ctx, *json.loads(text))

    @functions.bind("test/slow", timeout=None)
    async def slow(ctx: Context, text: str) -> None:
        await asyncio.sleep(0)
        _go_on(ctx, *json.loads(text))


def _windows(functions: StatefulFunctions, program: Program) -> None:
    def add(ctx: WindowContext, count: Count, window: Separate) -> None:
        window.numbers = [*(window.numbers or []), count.number]

    add.__annotations__["window"] = Sharing if program.shares_panes else Separate
    collect = windowed("test/windows", program.kind, timeout=None, functions=functions)(add)

    @collect.on_close
    def close(ctx: WindowContext, window: Separate) -> None:
        start, end = map(millis, ctx.window)
        _note(ctx, "closed", start, end, sorted(window.numbers or []))

    @collect.on_late
    def late(ctx: WindowContext, count: Count) -> None:
        _note(ctx, "late", *map(millis, ctx.window), count.number)


def _joins(functions: StatefulFunctions, program: Program) -> None:
    grace = program.grace * _MILLISECOND

    @joined(
        "test/pairs",
        before=program.before * _MILLISECOND,
        after=program.after * _MILLISECOND,
        grace=grace,
        timeout=None,
        functions=functions,
    )
    def pair(ctx: Context, left: Left, right: Right) -> None:
        _note(ctx, "pair", left.number, right.number)

    @pair.on_unmatched
    def alone(ctx: Context, value: Left | Right) -> None:
        _note(ctx, "alone", value.number)

    @joined_as_of(
        "test/prices",
        within=program.within * _MILLISECOND,
        grace=grace,
        timeout=None,
        functions=functions,
    )
    def price(ctx: Context, left: Left, right: Right) -> None:
        _note(ctx, "price", left.number, right.number)

    @price.on_unmatched
    def free(ctx: Context, left: Left) -> None:
        _note(ctx, "price", left.number, None)


def components_of(program: Program) -> list[KafkaIngress | KafkaEgress]:
    """Return the ingresses and the egress of a program."""
    streams, rows = (KafkaIngress.for_id(each) for each in (STREAMS, ROWS))
    streams.with_topic("streams", targets=["test/relay"], valueFormat={"type": "text"})
    rows.with_topic(
        "rows",
        targets=["test/table"],
        value_type="event-time-model.functions/Row",
        valueFormat={"type": "json"},
        tombstones="deliver",
    )
    made: list[KafkaIngress | KafkaEgress] = []
    for builder, settings in zip((streams, rows), program.settings.values(), strict=True):
        builder.with_kafka_address("kafka:9092").with_consumer_group_id("g")
        builder.with_event_time(
            out_of_order=settings.out_of_order * _MILLISECOND,
            idle=settings.idle * _MILLISECOND,
            max_future=settings.max_future * _MILLISECOND,
            when_all_idle="follow" if settings.follows else "hold",
        )
        made.append(builder.build())
    egress = KafkaEgress.for_id(_OUT).with_kafka_address("kafka:9092")
    made.append(egress.with_exactly_once_producer_semantics(timedelta(minutes=1)).build())
    return made
