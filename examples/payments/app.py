# SPDX-License-Identifier: Apache-2.0
"""Watches card payments: limits, scores of a service, alerts, and holds that end by themselves.

``spark-submit examples/payments/app.py`` reads payments from Kafka and limits from CSV files, and
writes alerts exactly once. Payments that cannot be handled become dead letters.
"""

import logging
import os
import threading
from datetime import timedelta

import aiohttp
import attrs

import statefun
from statefun import (
    Address,
    Context,
    KafkaEgressMessage,
    Retry,
    State,
    function,
    make_json_type,
    state_value,
)

ALERTS = "com.example.payments/alerts"
HOLD = timedelta(hours=1)
DAY = timedelta(days=1)
RISKY = 0.8

log = logging.getLogger("payments")


@attrs.frozen
class Payment:
    """A payment by card; its record's key is the account."""

    id: str
    cents: int
    merchant: str


@attrs.frozen
class Limit:
    """A row of a CSV file, whose fields are text: what an account may spend in a day."""

    account: str
    daily: str


@attrs.frozen
class Scored:
    """A payment with its risk, from 0 to 1."""

    payment: Payment
    risk: float


@attrs.frozen
class HoldEnds:
    """A reminder: the hold that a payment has caused is over."""

    payment: str


make_json_type("com.example.payments/Payment", Payment)
make_json_type("com.example.payments/Limit", Limit)


class Account(State):
    """What is known of an account."""

    limit: int = 50_000
    """In cents a day."""
    spent: int = state_value(default=0, expire_after_write=DAY)
    held_for: str = ""
    """The payment that has caused a hold; empty without one."""


class Scoring:
    """A client of the scoring service, one for each Python worker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._session: aiohttp.ClientSession | None = None
        self.calls = 0

    async def risk_of(self, payment: Payment) -> float:
        """Return the risk of a payment; without a service, that of its amount."""
        with self._lock:
            self.calls += 1
        if not self._url:
            return min(payment.cents / 1_000_000, 1.0)
        if self._session is None:
            self._session = aiohttp.ClientSession(raise_for_status=True)
        async with self._session.post(self._url, json=attrs.asdict(payment)) as answer:
            return float((await answer.json())["risk"])


scoring = Scoring(os.environ.get("SCORING_URL", ""))


@function(
    "com.example.payments/score",
    on_failure=Retry(attempts=5, backoff=timedelta(seconds=1), then="dead-letter"),
)
async def score(ctx: Context, payment: Payment) -> None:
    """Ask the service how risky a payment is, and tell the account."""
    risk = await scoring.risk_of(payment)
    ctx.send(Address("com.example.payments/account", ctx.address.id), Scored(payment, risk))


@function("com.example.payments/account", on_failure="dead-letter")
def check(ctx: Context, scored: Scored, account: Account) -> None:
    """Count a payment, and raise an alert if it is too much or too risky."""
    payment = scored.payment
    account.spent += payment.cents
    if account.held_for:
        alert(ctx, payment, f"on hold since {account.held_for}")
    elif scored.risk >= RISKY:
        account.held_for = payment.id
        alert(ctx, payment, f"risk {scored.risk:.2f}")
        ctx.send_after(HOLD, ctx.address, HoldEnds(payment.id))
    elif account.spent > account.limit:
        alert(ctx, payment, f"{account.spent} of {account.limit} cents spent")


@check.on(Limit)
def change_limit(_ctx: Context, limit: Limit, account: Account) -> None:
    """Take over a limit; one that is no number becomes a dead letter."""
    account.limit = int(limit.daily)
    log.info("limit %d", account.limit)


@check.on(HoldEnds)
def release(_ctx: Context, ended: HoldEnds, account: Account) -> None:
    """End a hold."""
    if account.held_for == ended.payment:
        del account.held_for


def alert(ctx: Context, payment: Payment, reason: str) -> None:
    """Send an alert."""
    ctx.send(
        KafkaEgressMessage(
            ALERTS,
            topic="alerts",
            key=ctx.address.id,
            value=f"{payment.id}: {reason}",
            headers={"merchant": payment.merchant},
        )
    )


if __name__ == "__main__":
    statefun.run()
