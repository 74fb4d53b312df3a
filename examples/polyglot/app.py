# SPDX-License-Identifier: Apache-2.0
"""Adds up baskets, in Python, with prices that a function in JavaScript knows.

``spark-submit app.py``; ``prices/server.js`` serves the other function.
"""

import json

import attrs

import statefun
from statefun import Address, Context, KafkaEgressMessage, State, function, make_json_type

PRICE = "com.example.prices/price"


@attrs.frozen
class Purchase:
    """Something that a customer takes; the record's key is the customer."""

    item: str
    count: int


@attrs.frozen
class Ask:
    """Asks the price of an item; its address is the item."""

    count: int


@attrs.frozen
class Quote:
    """The answer: what so many of the item cost, or None for an item without a price."""

    item: str
    cents: int | None


# The names by which the other language knows the classes.
make_json_type("com.example.prices/Ask", Ask)
make_json_type("com.example.prices/Quote", Quote)


class Basket(State):
    """What a customer has taken."""

    cents: int = 0


@function("com.example.baskets/basket")
def take(ctx: Context, purchase: Purchase) -> None:
    """Ask the price; the answer comes back as a message."""
    ctx.send(Address(PRICE, purchase.item), Ask(purchase.count))


@take.on(Quote)
def add(ctx: Context, quote: Quote, basket: Basket) -> None:
    """Add the price to the basket."""
    basket.cents += quote.cents or 0
    total = {"item": quote.item, "cents": quote.cents, "total": basket.cents}
    ctx.send(
        KafkaEgressMessage(
            "com.example.baskets/out",
            topic="baskets",
            key=ctx.address.id,
            value=json.dumps(total),
        )
    )


if __name__ == "__main__":
    statefun.run()
