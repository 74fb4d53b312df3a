# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun.module.loader import parse_module
from statefun.runtime.ingress.kafka_source import consumer_properties


def properties(given: str) -> dict[str, str]:
    """Return the properties for an ingress with some of its own."""
    module = parse_module(
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec: {id: test/in, address: 'localhost:9092', consumerGroupId: g,\n"
        f"  properties: [{given}],\n"
        "  topics: [{topic: t, valueType: test/bytes, targets: [test.fns/f]}]}\n"
    )
    return dict(consumer_properties(module.ingresses[0]))


def test_no_fetch_waits_long_and_a_poll_returns_many_records() -> None:
    """Spark asks for offsets after each poll, and the broker answers only after a fetch that waits."""
    assert properties("") == {
        "isolation.level": "read_committed",
        "max.poll.records": "10000",
        "fetch.max.wait.ms": "10",
    }


def test_the_ingress_s_own_properties_win() -> None:
    """They take precedence over the properties that the runtime sets."""
    found = properties("fetch.max.wait.ms: 100, client.rack: here")

    assert found["fetch.max.wait.ms"] == "100"
    assert found["client.rack"] == "here"
    assert found["max.poll.records"] == "10000"


def test_large_fetches_that_an_ingress_asks_for_may_wait() -> None:
    """The runtime's limit would end each large fetch after a moment."""
    found = properties("fetch.min.bytes: 100000")

    assert found == {"isolation.level": "read_committed", "fetch.min.bytes": "100000"}
