# SPDX-License-Identifier: Apache-2.0
"""Takes orders: reserves the goods, charges the customer, ships; undoes it all where a step fails.

``spark-submit app.py``. An order is a saga: its function sends each step to another function, waits
for the answer, and sends what undoes the steps before where the answer is a refusal.
"""

import json
from datetime import timedelta
from enum import Enum

import attrs

import statefun
from statefun import Address, Context, KafkaEgressMessage, State, function, state_value

ORDER = "com.example.orders/order"
STOCK = "com.example.orders/stock"
PAYMENT = "com.example.orders/payment"
SHIPMENT = "com.example.orders/shipment"

CREDIT_CENTS = 100_000
"""What a customer may owe."""
SHIP_WITHIN = timedelta(days=1)
KEPT = timedelta(days=30)
"""An order is forgotten when nothing has happened to it for so long."""


@attrs.frozen
class Place:
    """An order of a customer; its record's key is the order's id."""

    customer: str
    item: str
    count: int = attrs.field(validator=attrs.validators.gt(0))
    cents: int
    city: str


@attrs.frozen
class Restock:
    """Goods arrive; the record's key is the item."""

    count: int


@attrs.frozen
class Reserve:
    """Asks an item's stock to put goods aside."""

    order: str
    count: int


@attrs.frozen
class Release:
    """Undoes a reservation."""

    count: int


@attrs.frozen
class Charge:
    """Asks a customer to pay."""

    order: str
    cents: int


@attrs.frozen
class Refund:
    """Undoes a charge."""

    cents: int


@attrs.frozen
class Ship:
    """Asks for goods to be sent."""

    item: str
    count: int
    city: str


@attrs.frozen
class Cancel:
    """Keeps goods from being sent."""


@attrs.frozen
class Done:
    """Answers an order: the requested step is done."""


@attrs.frozen
class Refused:
    """Answers an order: the requested step cannot be done, and never will be."""

    reason: str


class Status(str, Enum):
    """How far an order is."""

    NEW = "new"
    PLACED = "placed"
    RESERVED = "reserved"
    PAID = "paid"
    SHIPPED = "shipped"
    CANCELLED = "cancelled"


class Order(State):
    """An order and how far it is."""

    details: Place | None = state_value(default=None, expire_after_call=KEPT)
    status: Status = state_value(default=Status.NEW, expire_after_call=KEPT)


class Goods(State):
    """The stock of an item."""

    available: int = 0


class Account(State):
    """A customer's account."""

    owed: int = 0


class Parcel(State):
    """The goods of an order on their way."""

    status: Status = state_value(default=Status.NEW, expire_after_call=KEPT)


@function(ORDER)
def place(ctx: Context, details: Place, order: Order) -> None:
    """Begin with the goods; an order that comes a second time is the same order."""
    if order.status is not Status.NEW:
        return
    order.details = details
    order.status = Status.PLACED
    ctx.send(Address(STOCK, details.item), Reserve(ctx.address.id, details.count))


@place.on(Done)
def proceed(ctx: Context, _done: Done, order: Order) -> None:
    """Take the next step."""
    id_, details = ctx.address.id, order.details
    if details is None:  # the order was forgotten meanwhile
        return
    if order.status is Status.PLACED:
        order.status = Status.RESERVED
        ctx.send(Address(PAYMENT, details.customer), Charge(id_, details.cents))
    elif order.status is Status.RESERVED:
        order.status = Status.PAID
        ctx.send(Address(SHIPMENT, id_), Ship(details.item, details.count, details.city))
        ctx.send_after(SHIP_WITHIN, Address(SHIPMENT, id_), Cancel(), "late")
    elif order.status is Status.PAID:
        order.status = Status.SHIPPED
        ctx.cancel_delayed_message("late")
        publish(ctx, order)


@place.on(Refused)
def undo(ctx: Context, refusal: Refused, order: Order) -> None:
    """Undo the steps that are done, the last one first."""
    details = order.details
    if details is None:  # the order was forgotten meanwhile
        return
    if order.status is Status.PAID:
        ctx.send(Address(PAYMENT, details.customer), Refund(details.cents))
    if order.status in {Status.PAID, Status.RESERVED}:
        ctx.send(Address(STOCK, details.item), Release(details.count))
    order.status = Status.CANCELLED
    publish(ctx, order, refusal.reason)


@function(STOCK)
def restock(_ctx: Context, delivery: Restock, goods: Goods) -> None:
    """Put goods on the shelf."""
    goods.available += delivery.count


@restock.on(Reserve)
def reserve(ctx: Context, request: Reserve, goods: Goods) -> None:
    """Put goods aside, or refuse."""
    if request.count > goods.available:
        ctx.send(Address(ORDER, request.order), Refused(f"{goods.available} {ctx.address.id} left"))
        return
    goods.available -= request.count
    ctx.send(Address(ORDER, request.order), Done())


@restock.on(Release)
def release(_ctx: Context, request: Release, goods: Goods) -> None:
    """Put goods back."""
    goods.available += request.count


@function(PAYMENT)
def charge(ctx: Context, request: Charge, account: Account) -> None:
    """Charge a customer who has credit left, or refuse."""
    if account.owed + request.cents > CREDIT_CENTS:
        ctx.send(Address(ORDER, request.order), Refused(f"{account.owed} cents owed"))
        return
    account.owed += request.cents
    ctx.send(Address(ORDER, request.order), Done())


@charge.on(Refund)
def refund(_ctx: Context, request: Refund, account: Account) -> None:
    """Give the money back."""
    account.owed -= request.cents


@function(SHIPMENT, on_failure="dead-letter")
def ship(ctx: Context, request: Ship, parcel: Parcel) -> None:
    """Hand goods to the carrier; a parcel for nowhere becomes a dead letter.

    Somebody may correct the letter and replay it, until the order has waited for too long.
    """
    if parcel.status is not Status.NEW:
        return
    if not request.city:
        raise ValueError(f"order {ctx.address.id} has no city to ship to")
    parcel.status = Status.SHIPPED
    label = f"{request.count} {request.item} to {request.city}"
    ctx.send(record("parcels", ctx.address.id, label))
    ctx.send(Address(ORDER, ctx.address.id), Done())


@ship.on(Cancel)
def cancel(ctx: Context, _cancel: Cancel, parcel: Parcel) -> None:
    """Refuse to ship later, unless the goods are on their way already."""
    if parcel.status is Status.NEW:
        parcel.status = Status.CANCELLED
        ctx.send(Address(ORDER, ctx.address.id), Refused("not shipped in time"))


def publish(ctx: Context, order: Order, reason: str = "") -> None:
    """Publish how an order has ended."""
    event = {"status": order.status, "reason": reason}
    ctx.send(record("order-events", ctx.address.id, json.dumps(event)))


def record(topic: str, key: str, value: str) -> KafkaEgressMessage:
    """Return a record for the egress."""
    return KafkaEgressMessage("com.example.orders/out", topic=topic, key=key, value=value)


if __name__ == "__main__":
    statefun.run()
