# SPDX-License-Identifier: Apache-2.0
"""Planes, carriers and airports that tell each other about flights.

``spark-submit examples/flights/app.py``. A flight arrives at its plane, which messages its
carrier and the airport it lands at; an airport where many flights are late raises an alert, and
so does a plane that has not flown on for long. The delays of each hour of scheduled departures are published
for each airport once the hour has passed, in event time.
"""

import json
from datetime import timedelta

import statefun
from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    LongType,
    Message,
    StringType,
    ValueSpec,
    function,
    make_json_type,
    message_builder,
)
from statefun.windows import Tumbling, Window, WindowContext, windowed

FLIGHT = make_json_type("com.example.flights/Flight")
REPORT = make_json_type("com.example.flights/Report")
REMINDER = make_json_type("com.example.flights/Reminder")
DELAYS = make_json_type("com.example.flights/Delays")

RECENT = 50
"""So many arrivals are looked at for an alert."""
ALERT_MINUTES = 60
GROUNDED = timedelta(days=2)
"""A plane that does not fly on within this time is asked after."""


@function(
    "com.example.flights/plane",
    specs=[
        ValueSpec("legs", IntType),
        ValueSpec("miles", LongType),
        ValueSpec("last_airport", StringType),
    ],
)
def plane(ctx: Context, message: Message) -> None:
    """Count a leg, tell carrier and airport, and wait for the next one."""
    own = ctx.storage
    if message.is_type(REPORT):
        report(ctx, legs=own.legs, miles=own.miles, last_airport=own.last_airport)
        return
    if message.is_type(REMINDER):
        text = f"{ctx.address.id}: at {own.last_airport} for {GROUNDED.days} days"
        ctx.send(to("alerts", ctx.address.id, text))
        return
    ctx.cancel_delayed_message("grounded")
    reminder = message_builder(
        ctx.address.typename, ctx.address.id, value="grounded", value_type=REMINDER
    )
    ctx.send_after(GROUNDED, reminder, "grounded")
    flight = message.as_type(FLIGHT)
    own.legs = (own.legs or 0) + 1
    own.miles = (own.miles or 0) + flight["miles"]
    own.last_airport = flight["to"]
    ctx.send(
        message_builder("com.example.flights/carrier", flight["carrier"], int_value=flight["miles"])
    )
    if flight["delay"] is not None:  # it has arrived
        for function_of_airports in ("com.example.flights/airport", "com.example.flights/hours"):
            ctx.send(message_builder(function_of_airports, flight["to"], int_value=flight["delay"]))


@function(
    "com.example.flights/carrier",
    specs=[ValueSpec("flights", IntType), ValueSpec("miles", LongType)],
)
def carrier(ctx: Context, message: Message) -> None:
    """Keep a carrier's running totals."""
    own = ctx.storage
    if message.is_type(REPORT):
        report(ctx, flights=own.flights, miles=own.miles)
        return
    own.flights = (own.flights or 0) + 1
    own.miles = (own.miles or 0) + message.as_int()


@function(
    "com.example.flights/airport",
    specs=[
        ValueSpec("arrivals", IntType),
        ValueSpec("minutes", LongType),
        ValueSpec("recent", DELAYS),
        ValueSpec("alerted", IntType),
    ],
)
def airport(ctx: Context, message: Message) -> None:
    """Keep an airport's delays; alert when its last arrivals were late on average."""
    own = ctx.storage
    if message.is_type(REPORT):
        report(ctx, arrivals=own.arrivals, minutes=own.minutes)
        return
    delay = message.as_int()
    own.arrivals = (own.arrivals or 0) + 1
    own.minutes = (own.minutes or 0) + delay
    recent = [*(own.recent or []), delay][-RECENT:]
    own.recent = recent
    mean = sum(recent) / RECENT
    if len(recent) == RECENT and mean > ALERT_MINUTES:
        if not own.alerted:
            text = f"{ctx.address.id}: {mean:.0f} minutes late on average of {RECENT} arrivals"
            ctx.send(to("alerts", ctx.address.id, text))
        own.alerted = 1
    else:
        del own.alerted


class Hour(Window):
    """The arrivals at an airport of flights that were to depart in one hour."""

    arrivals: int = 0
    minutes: int = 0


@windowed("com.example.flights/hours", Tumbling(timedelta(hours=1)))
def arrive(ctx: WindowContext, delay: int, hour: Hour) -> None:  # noqa: ARG001 - as handlers are
    """Count an arrival; its event time is that of its flight."""
    hour.arrivals += 1
    hour.minutes += delay


@arrive.on_close
def publish_hour(ctx: WindowContext, hour: Hour) -> None:
    """Publish the delays of an hour."""
    key = f"{ctx.address.id} {ctx.window.start:%Y-%m-%dT%H:%MZ}"
    totals = {"arrivals": hour.arrivals, "minutes": hour.minutes}
    ctx.send(to("hours", key, json.dumps(totals)))


def report(ctx: Context, **totals: object) -> None:
    """Publish the totals of an address."""
    ctx.send(to("totals", str(ctx.address), json.dumps(totals)))


def to(topic: str, key: str, text: str) -> KafkaEgressMessage:
    """Make a record for the example's egress."""
    return KafkaEgressMessage("com.example.flights/out", topic=topic, key=key, value=text)


if __name__ == "__main__":
    statefun.run()
