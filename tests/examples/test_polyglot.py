# SPDX-License-Identifier: Apache-2.0
"""The polyglot example: a function in Python asks one in JavaScript, which a real server runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from languages.servers import Language, Server, make_javascript, run_javascript
from submitting import EXAMPLES

from statefun import Address
from statefun.testing import TestedApplication

EXAMPLE = EXAMPLES / "polyglot"
PRICES = Language("prices", ("node", "npm"), (), make_javascript, run_javascript, EXAMPLE)


@pytest.fixture(scope="module")
def prices() -> Iterator[str]:
    """Serve the function in JavaScript; return its URL."""
    if PRICES.missing_tools:
        pytest.skip(f"the prices need {' and '.join(PRICES.missing_tools)} on the PATH")
    with Server(PRICES) as server:
        yield server.url


@pytest.fixture
def app(
    statefun_app: Callable[..., TestedApplication], prices: str, monkeypatch: pytest.MonkeyPatch
) -> TestedApplication:
    """Return the example; tea costs 250 cents."""
    monkeypatch.setenv("PRICES_URL", prices)
    app = statefun_app(EXAMPLE / "app.py")
    app.produce("prices", "tea", '{"cents": 250}')
    app.drain()
    return app


def test_python_adds_up_what_javascript_knows(app: TestedApplication) -> None:
    """A question goes to the other language, and the answer comes back."""
    app.produce("purchases", "ada", '{"item": "tea", "count": 2}')
    app.drain()
    app.produce("prices", "tea", '{"cents": 300}')
    app.drain()
    app.produce("purchases", "ada", '{"item": "tea", "count": 1}')
    app.drain()

    assert [record.json() for record in app.egress("baskets")] == [
        {"item": "tea", "cents": 500, "total": 500},
        {"item": "tea", "cents": 300, "total": 800},
    ]
    assert app.state(Address("com.example.prices/price", "tea")) == {"cents": 300}


def test_an_item_without_a_price_costs_nothing(app: TestedApplication) -> None:
    """The other language has no value for it, which is null."""
    app.produce("purchases", "ada", '{"item": "gold", "count": 1}')
    app.drain()

    assert app.egress("baskets")[0].json() == {"item": "gold", "cents": None, "total": 0}
