# SPDX-License-Identifier: Apache-2.0
"""The orders example: goods, money and parcels agree, however an order ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from submitting import EXAMPLES

from statefun import Address, TypedValue
from statefun.testing import InProcessApplication, TestedApplication, explore

APP = EXAMPLES / "orders" / "app.py"
TEA = Address("com.example.orders/stock", "tea")
ADA = Address("com.example.orders/payment", "ada")


@pytest.fixture
def app(statefun_app: Callable[..., TestedApplication]) -> TestedApplication:
    """Return the example with 10 packets of tea in stock."""
    app = statefun_app(APP)
    app.produce("deliveries", "tea", '{"count": 10}')
    app.drain()
    return app


def place(app: TestedApplication, id_: str, **changes: Any) -> None:
    """Place an order: two packets of tea for ada, to London."""
    order = {"customer": "ada", "item": "tea", "count": 2, "cents": 800, "city": "London"}
    app.produce("orders", id_, json.dumps(order | changes))


def events(app: TestedApplication) -> list[tuple[str | None, str, str]]:
    """Return how orders have ended: id, status and reason."""
    return [
        (record.key, record.json()["status"], record.json()["reason"])
        for record in app.egress("order-events")
    ]


def test_an_order_is_reserved_paid_and_shipped(app: TestedApplication) -> None:
    """Each step follows the one before, and an order that comes twice is one order."""
    place(app, "o1")
    place(app, "o1")
    app.advance(days=2)

    assert events(app) == [("o1", "shipped", "")]
    assert [record.text for record in app.egress("parcels")] == ["2 tea to London"]
    assert app.state(TEA) == {"available": 8}
    assert app.state(ADA) == {"owed": 800}


def test_an_order_of_more_than_there_is_is_cancelled(app: TestedApplication) -> None:
    """Nothing is reserved, and nothing is paid."""
    place(app, "o1", count=11)
    app.drain()

    assert events(app) == [("o1", "cancelled", "10 tea left")]
    assert app.state(TEA) == {"available": 10}
    assert app.state(ADA) == {}


def test_an_order_that_is_not_paid_gives_its_goods_back(app: TestedApplication) -> None:
    """The reservation is undone."""
    place(app, "o1", cents=90_000)
    app.drain()
    place(app, "o2", cents=20_000)
    app.drain()

    assert events(app) == [("o1", "shipped", ""), ("o2", "cancelled", "90000 cents owed")]
    assert app.state(TEA) == {"available": 8}
    assert app.state(ADA) == {"owed": 90_000}


def test_an_order_that_is_not_shipped_within_a_day_is_undone(app: TestedApplication) -> None:
    """The parcel is a dead letter until then, and a replay of it afterwards ships nothing."""
    place(app, "o1", city="")
    app.drain()
    assert app.state(ADA) == {"owed": 800}
    app.advance(days=1)

    [letter] = app.dead_letters()
    assert letter.target == Address("com.example.orders/shipment", "o1")
    assert "order o1 has no city to ship to" in letter.message
    assert events(app) == [("o1", "cancelled", "not shipped in time")]
    assert app.state(TEA) == {"available": 10}
    assert app.state(ADA) == {"owed": 0}

    corrected = b'{"item": "tea", "count": 2, "city": "London"}'
    app.send("com.example.orders/shipment", "o1", TypedValue("io.statefun.python/Ship", corrected))
    app.drain()
    assert app.egress("parcels") == []
    assert app.dead_letters() == [letter]


def test_an_order_of_nothing_is_a_dead_letter(app: TestedApplication) -> None:
    """A value that is no order reaches no function."""
    place(app, "o1", count=0)
    app.drain()

    [letter] = app.dead_letters()
    assert letter.code == "SF302"
    assert "'count' must be > 0" in letter.message


@pytest.mark.usefixtures("statefun_app")
def test_goods_and_money_agree_after_crashes() -> None:
    """In whatever order messages come, and wherever the application crashes."""

    def orders(app: InProcessApplication) -> None:
        app.produce("deliveries", "tea", '{"count": 7}')
        for number in range(4):
            place(app, f"o{number}", cents=40_000)
        app.drain()
        shipped = [id_ for id_, status, _ in events(app) if status == "shipped"]
        assert len(events(app)) == 4
        assert app.state(TEA) == {"available": 7 - 2 * len(shipped)}
        assert app.state(ADA).get("owed", 0) == 40_000 * len(shipped) <= 100_000

    explore(orders, program=APP, crashes=100)
