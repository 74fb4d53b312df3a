# SPDX-License-Identifier: Apache-2.0
"""Scores card payments, asks the holder about risky ones, and blocks a card without an answer.

``spark-submit app.py``. A card's state has the payments of the last minutes and expires with them. A
timer waits for the holder's answer, which cancels it.
"""

import json
from datetime import datetime, timedelta

import attrs

import statefun
from statefun import Context, KafkaEgressMessage, State, function, state_value

WINDOW = timedelta(minutes=10)
"""Payments that are older do not count."""
ANSWER_WITHIN = timedelta(minutes=5)
RISKY = 0.75
QUESTION = "question"
"""The token that cancels the timer of a question; a card has one question at a time."""


@attrs.frozen
class Payment:
    """A payment; its record's key is the card."""

    id: str
    time: datetime
    country: str


@attrs.frozen
class Answer:
    """The holder's answer to a question; its record's key is the card."""

    payment: str
    is_mine: bool


@attrs.frozen
class Unanswered:
    """The time for an answer is over."""

    payment: str


class Card(State):
    """What is known of a card."""

    times: list[datetime] = state_value(default_factory=list, expire_after_write=WINDOW)
    """Of the payments in the window."""
    country: str = state_value(default="", expire_after_write=timedelta(days=1))
    """Of the last payment."""
    question: str = ""
    """The payment that the holder is asked about; empty without a question."""
    is_blocked: bool = False


@function("com.example.fraud/card")
def pay(ctx: Context, payment: Payment, card: Card) -> None:
    """Score a payment, and accept it, ask about it or decline it."""
    begin = payment.time - WINDOW
    card.times = [*(time for time in card.times if time > begin), payment.time]
    risk = score(len(card.times), has_moved=card.country not in {"", payment.country})
    card.country = payment.country
    if card.question or card.is_blocked:
        decide(ctx, payment.id, "declined", risk)
    elif risk < RISKY:
        decide(ctx, payment.id, "accepted", risk)
    else:
        card.question = payment.id
        ctx.send_after(ANSWER_WITHIN, ctx.address, Unanswered(payment.id), QUESTION)
        decide(ctx, payment.id, "asked", risk)


@pay.on(Answer)
def settle(ctx: Context, answer: Answer, card: Card) -> None:
    """Stop waiting; block the card if the payment is not the holder's."""
    if answer.payment != card.question:  # it comes too late
        return
    ctx.cancel_delayed_message(QUESTION)
    card.question = ""
    if answer.is_mine:
        del card.times  # the holder knows of them
        decide(ctx, answer.payment, "accepted")
    else:
        card.is_blocked = True
        decide(ctx, answer.payment, "declined")


@pay.on(Unanswered)
def block(ctx: Context, timeout: Unanswered, card: Card) -> None:
    """Block the card of a holder who does not answer."""
    if timeout.payment != card.question:  # the answer came when this was on its way
        return
    card.question = ""
    card.is_blocked = True
    decide(ctx, timeout.payment, "declined")


def score(count: int, *, has_moved: bool) -> float:
    """Return the risk, from 0 to 1, of the last of ``count`` payments within the window."""
    return min(0.25 * (count - 1) + 0.5 * has_moved, 1.0)


def decide(ctx: Context, payment: str, verdict: str, risk: float | None = None) -> None:
    """Publish what becomes of a payment."""
    decision = {"payment": payment, "verdict": verdict, "risk": risk}
    ctx.send(
        KafkaEgressMessage(
            "com.example.fraud/decisions",
            topic="decisions",
            key=ctx.address.id,
            value=json.dumps(decision),
        )
    )


if __name__ == "__main__":
    statefun.run()
