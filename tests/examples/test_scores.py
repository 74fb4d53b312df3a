# SPDX-License-Identifier: Apache-2.0
"""The example that scores customers with a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from submitting import EXAMPLES

from statefun.testing import TestedApplication

EXAMPLE = EXAMPLES / "scores"


@pytest.fixture
def app(
    statefun_app: Callable[..., TestedApplication], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> TestedApplication:
    """Return the example with a copy of its model."""
    copy = tmp_path / "model.csv"
    copy.write_bytes((EXAMPLE / "model.csv").read_bytes())
    monkeypatch.setenv("MODEL", str(copy))
    return statefun_app(EXAMPLE / "app.py")


def order(app: TestedApplication, customer: str, euros: float, *, is_returned: bool) -> float:
    """Let a customer order something; return the score."""
    app.produce("sales", customer, json.dumps({"euros": euros, "is_returned": is_returned}))
    app.drain()
    risk: float = app.egress("scores")[-1].json()["risk"]
    return risk


def test_a_customer_is_scored_by_all_orders(app: TestedApplication) -> None:
    """As the model says, and each customer alone."""
    first = order(app, "ada", 20, is_returned=False)
    second = order(app, "ada", 80, is_returned=True)
    other = order(app, "bob", 20, is_returned=False)

    assert (first, second, other) == (0.102, 0.354, 0.102)
    assert app.egress("scores")[1].json() == {
        "risk": 0.354,
        "orders": 2,
        "euros": 100.0,
        "returns": 1,
    }


def test_the_model_is_loaded_once(app: TestedApplication, tmp_path: Path) -> None:
    """By the first score; a model without a file would fail."""
    first = order(app, "ada", 20, is_returned=False)
    (tmp_path / "model.csv").unlink()

    assert order(app, "bob", 20, is_returned=False) == first


def test_the_order_of_features_in_the_file_does_not_matter(
    app: TestedApplication, tmp_path: Path
) -> None:
    """Weights and features are matched by their names."""
    file = tmp_path / "model.csv"
    pd.read_csv(file).iloc[::-1].to_csv(file, index=False)

    assert order(app, "ada", 20, is_returned=False) == 0.102
