# SPDX-License-Identifier: Apache-2.0
"""Sums up what customers order: from one table of SQLite into another; ``spark-submit app.py``."""

import attrs

import statefun
from statefun import Context, State, egress_message_builder, function, make_json_type


@attrs.frozen
class Order:
    """A row of the table ``orders``."""

    customer: str
    cents: int


@attrs.frozen
class Total:
    """A row of the table ``totals``."""

    customer: str
    cents: int


class Customer(State):
    """What a customer has ordered."""

    cents: int = 0


TOTAL = make_json_type("com.example.shop/Total", Total)


@function("com.example.shop/customer")
def add(ctx: Context, order: Order, customer: Customer) -> None:
    """Add an order to the customer's total."""
    customer.cents += order.cents
    total = Total(ctx.address.id, customer.cents)
    ctx.send(egress_message_builder("com.example.shop/totals", total, TOTAL))


if __name__ == "__main__":
    statefun.run()
