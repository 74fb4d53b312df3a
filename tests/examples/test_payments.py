# SPDX-License-Identifier: Apache-2.0
"""The payments example: limits, scores, alerts, holds and dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from statefun import Address
from statefun.testing import TestedApplication

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "payments"
ACCOUNT = "com.example.payments/account"


@pytest.fixture
def app(statefun_app: Callable[..., TestedApplication]) -> TestedApplication:
    """Return the example."""
    return statefun_app(EXAMPLE / "app.py")


def pay(app: TestedApplication, id_: str, cents: int, account: str = "ada") -> None:
    """Write a payment."""
    value = json.dumps({"id": id_, "cents": cents, "merchant": "tea"})
    app.produce("payments", account, value)


def alerts(app: TestedApplication) -> list[str]:
    """Return the texts of the alerts so far."""
    return [str(record.text) for record in app.egress("alerts")]


def test_spending_above_the_limit_is_an_alert(app: TestedApplication) -> None:
    """What was spent counts for a day."""
    pay(app, "p1", 30_000)
    pay(app, "p2", 20_001)
    app.drain()
    app.advance(timedelta(days=1))
    pay(app, "p3", 30_000)
    app.drain()

    assert alerts(app) == ["p2: 50001 of 50000 cents spent"]
    assert app.state(Address(ACCOUNT, "ada"))["spent"] == 30_000


def test_a_risky_payment_holds_the_account_for_an_hour(app: TestedApplication) -> None:
    """Each payment meanwhile is an alert; the hold ends by itself."""
    pay(app, "p1", 900_000)
    pay(app, "p2", 1)
    app.drain()
    app.advance(timedelta(hours=1))
    pay(app, "p3", 1)
    app.drain()

    first, second, third = alerts(app)
    assert (first, second) == ("p1: risk 0.90", "p2: on hold since p1")
    assert third.startswith("p3: 900002 of 50000")
    assert "held_for" not in app.state(Address(ACCOUNT, "ada"))


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("statefun_app", ["in_process", "spark"], indirect=True)
def test_limits_come_from_files(app: TestedApplication) -> None:
    """A row of the CSV file is a message to the account; one that is no number is a dead letter."""
    app.produce("limits", "ada", '{"account": "ada", "daily": "70000"}')
    pay(app, "p1", 60_000)
    app.drain()
    app.produce(str(EXAMPLE / "limits"), "bob", '{"account": "bob", "daily": "much"}')
    app.drain()

    assert app.state(Address(ACCOUNT, "ada")) == {"limit": 70_000, "spent": 60_000}
    assert alerts(app) == []
    (letter,) = app.dead_letters()
    assert letter.target == Address(ACCOUNT, "bob")
    assert "ValueError" in letter.message
