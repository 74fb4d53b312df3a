# SPDX-License-Identifier: Apache-2.0
"""Which topics Spark's source reads."""

from __future__ import annotations

import re

import pytest

from statefun.module.loader import parse_module
from statefun.runtime.ingress.subscription import source_option

MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: test/in
  address: kafka:9092
  consumerGroupId: g
  MORE
  topics:
    - {topic: __debezium-heartbeat.shop, valueType: a/B, targets: [a/f]}
    - {NEXT, valueType: a/B, targets: [a/f]}
"""


def selected(more: str, other: str, *topics: str) -> list[str]:
    """Return which of these topics the source of an ingress reads, if all of them exist."""
    [ingress] = parse_module(MODULE.replace("MORE", more).replace("NEXT", other)).ingresses
    name, value = source_option(ingress)
    if name == "subscribe":
        return [topic for topic in topics if topic in value.split(",")]
    return [topic for topic in topics if re.search(value, topic)]


@pytest.mark.parametrize(
    ("more", "other"),
    [
        ("commitOffsets: true", "topic: orders"),
        ("onDataLoss: go-on", "topic: orders"),
        ("commitOffsets: true", "topicPattern: 'orders|__debezium.*|.*offsets|statefun.*'"),
    ],
)
def test_only_patterns_leave_out_internal_topics(more: str, other: str) -> None:
    """A topic that is named is read, whatever its name is; also if other topics are there by a pattern."""
    topics = [
        "__debezium-heartbeat.shop",
        "orders",
        "__debezium-heartbeat-shop",
        "__debezium-heartbeat.shop2",
        "__consumer_offsets",
        "orders-2",
        "statefun-progress-a",
        "2__debezium-heartbeat.shop",
    ]

    assert selected(more, other, *topics) == ["__debezium-heartbeat.shop", "orders"]
