# SPDX-License-Identifier: Apache-2.0
"""The fraud example: windows slide, questions wait for answers, and state expires."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from submitting import EXAMPLES

from statefun import Address
from statefun.testing import TestedApplication

CARD = Address("com.example.fraud/card", "4711")


@pytest.fixture
def app(statefun_app: Callable[..., TestedApplication]) -> TestedApplication:
    """Return the example."""
    return statefun_app(EXAMPLES / "fraud" / "app.py")


def pay(app: TestedApplication, id_: str, country: str = "NO") -> str:
    """Pay with the card now; return the verdict."""
    payment = {"id": id_, "time": app.now.isoformat(), "country": country}
    app.produce("payments", CARD.id, json.dumps(payment))
    app.drain()
    return decisions(app)[-1][1]


def answer(app: TestedApplication, payment: str, *, is_mine: bool) -> None:
    """Answer a question."""
    app.produce("answers", CARD.id, json.dumps({"payment": payment, "is_mine": is_mine}))
    app.drain()


def decisions(app: TestedApplication) -> list[tuple[str, str]]:
    """Return payments and verdicts so far."""
    published = [record.json() for record in app.egress("decisions")]
    return [(decision["payment"], decision["verdict"]) for decision in published]


def test_many_payments_within_minutes_are_risky(app: TestedApplication) -> None:
    """The window slides: the fourth payment within ten minutes is one too many, whenever it comes."""
    for number in range(5):
        app.advance(minutes=4)
        assert pay(app, f"p{number}") == "accepted"
    app.advance(minutes=1)

    assert pay(app, "p5") == "asked"


def test_a_payment_in_another_country_is_risky(app: TestedApplication) -> None:
    """Shortly after one at home; not on the next day."""
    assert pay(app, "p1", "NO") == "accepted"
    assert pay(app, "p2", "BR") == "asked"
    answer(app, "p2", is_mine=True)
    app.advance(days=1)

    assert pay(app, "p3", "NO") == "accepted"


def test_an_answer_cancels_the_timer(app: TestedApplication) -> None:
    """The card stays open, and its earlier payments do not count any more."""
    pay(app, "p1", "NO")
    pay(app, "p2", "BR")
    answer(app, "p2", is_mine=True)
    app.advance(minutes=5)

    assert pay(app, "p3", "BR") == "accepted"
    assert decisions(app)[2:] == [("p2", "accepted"), ("p3", "accepted")]


@pytest.mark.parametrize("is_answered", [False, True], ids=["no answer", "the answer no"])
def test_a_card_is_blocked(app: TestedApplication, *, is_answered: bool) -> None:
    """Without an answer in time, or by the answer that the payment is not the holder's."""
    pay(app, "p1", "NO")
    pay(app, "p2", "BR")
    assert pay(app, "p3", "NO") == "declined"
    if is_answered:
        answer(app, "p2", is_mine=False)
    app.advance(minutes=5)
    answer(app, "p2", is_mine=True)

    assert pay(app, "p4", "NO") == "declined"
    assert decisions(app).count(("p2", "declined")) == 1


def test_the_state_of_a_card_expires(app: TestedApplication) -> None:
    """The times of payments and the country expire."""
    pay(app, "p1", "NO")
    app.advance(minutes=10)
    assert app.state(CARD) == {"country": "NO"}
    app.advance(days=1)
    assert app.state(CARD) == {}


def test_a_payment_without_a_time_zone_is_a_dead_letter(app: TestedApplication) -> None:
    """It cannot be compared with the others, which count on."""
    pay(app, "p1")
    app.produce("payments", CARD.id, '{"id": "p2", "time": "2026-05-01T10:00:00", "country": "NO"}')
    app.drain()

    assert pay(app, "p3") == "accepted"
    [letter] = app.dead_letters()
    assert "can't compare offset-naive and offset-aware datetimes" in letter.message
