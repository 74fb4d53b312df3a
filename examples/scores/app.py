# SPDX-License-Identifier: Apache-2.0
"""Scores customers with a model: how likely is the next order to come back?

``spark-submit app.py``. The features of a customer are state; each Python worker loads the model once.
"""

import json
import os
from functools import cache
from math import exp
from pathlib import Path

import attrs
import pandas as pd

import statefun
from statefun import Context, KafkaEgressMessage, State, function

MODEL = os.environ.get("MODEL", str(Path(__file__).resolve().parent / "model.csv"))


@attrs.frozen
class Order:
    """An order; its record's key is the customer."""

    euros: float
    is_returned: bool = False


@attrs.frozen
class Features:
    """What the model looks at, by the names that it has for them."""

    orders: int = 0
    euros: float = 0
    returns: int = 0

    def after(self, order: Order) -> "Features":
        """Return the features after one more order."""
        return Features(
            self.orders + 1, self.euros + order.euros, self.returns + int(order.is_returned)
        )


class Customer(State):
    """What is known of a customer."""

    features: Features = Features()


@cache
def model() -> "pd.Series[float]":
    """Return the weights of a logistic regression, by feature; a process loads them once."""
    return pd.read_csv(MODEL, index_col="feature")["weight"]


def risk_of(features: Features) -> float:
    """Return the probability that the next order is returned."""
    weights = model()
    values = pd.Series({"intercept": 1, **attrs.asdict(features)})
    return 1 / (1 + exp(-float(weights @ values[weights.index])))


@function("com.example.scores/customer")
def score(ctx: Context, order: Order, customer: Customer) -> None:
    """Count an order, and publish the score."""
    customer.features = customer.features.after(order)
    risk = round(risk_of(customer.features), 3)
    ctx.send(
        KafkaEgressMessage(
            "com.example.scores/out",
            topic="scores",
            key=ctx.address.id,
            value=json.dumps({"risk": risk, **attrs.asdict(customer.features)}),
        )
    )


if __name__ == "__main__":
    statefun.run()
