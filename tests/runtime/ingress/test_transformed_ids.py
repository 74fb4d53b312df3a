# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import datetime, timezone

import pytest
from pyspark.sql import Row, SparkSession

from statefun.engine.address_keys import address_of
from statefun.engine.row_flags import KEYLESS
from statefun.module.loader import parse_module
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.ingress.routing import route
from statefun.runtime.spark.session import open_session
from statefun.sdk.address import Address, TypeName

pytestmark = pytest.mark.spark

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Open a session as applications do."""
    return open_session(debug=False, state_partitions=2)


def routes(*topics: str) -> tuple[TopicRoute, ...]:
    """Return the routes of topics in JSON."""
    text = (
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec:\n"
        "  id: a/in\n"
        "  address: kafka:9092\n"
        "  startupPosition: {type: earliest}\n"
        "  topics:\n"
    )
    common = "targets: [a/b], valueType: a/User, valueFormat: {type: json}"
    listed = "".join(f"    - {{{common}, {topic}}}\n" for topic in topics)
    return parse_module(text + listed).ingresses[0].topics


BY_ID = "transforms: [{type: ValueToKey, fields: id}, {type: ExtractField$Key, field: id}]"


def rows(
    spark: SparkSession,
    records: list[tuple[bytes | None, bytes | None, str]],
    *topics: str,
) -> list[Row]:
    """Route records, and return the rows in the order of their offsets."""
    content = [
        (key, value, topic, 3, offset, TIME, None)
        for offset, (key, value, topic) in enumerate(records)
    ]
    frame = route(spark.createDataFrame(content, COLUMNS), TypeName("a", "in"), routes(*topics))
    return sorted(frame.collect(), key=lambda row: int(row.offset))


def test_keys_of_some_topics_are_transformed(spark: SparkSession) -> None:
    """Keys of other topics stay as they are, and all records keep their original keys."""
    found = rows(
        spark,
        [
            (b"k", b'{"id":1}', "made"),
            (None, b'{"id":"x"}', "made"),
            (b"k", b'{"id":1}', "plain"),
            (b'{"b":[1,2]}', b"{}", "keyed"),
            (None, b"{}", "plain"),
            (b"k", None, "made"),
            (b"k", b'{"id":""}', "made"),
        ],
        f"topic: made, {BY_ID}",
        "topic: plain",
        "topicPattern: key.*, keyFormat: {type: json}, transforms: [{type: ExtractField$Key, field: b}]",
    )
    assert [address_of(bytes(row.target)) for row in found] == [
        Address("a", "b", "1"),
        Address("a", "b", "x"),
        Address("a", "b", "k"),
        Address("a", "b", "[1,2]"),
        Address("statefun.rejected", "null-key", "plain/3"),
        Address("statefun.rejected", "untransformable", "made/3"),
        Address("statefun.rejected", "empty-key", ""),
    ]
    keys = [None if row.key is None else bytes(row.key) for row in found]
    assert keys == [b"k", None, None, b'{"b":[1,2]}', None, b"k", b"k"]
    assert [row.flags & KEYLESS for row in found] == [0, KEYLESS, 0, 0, 0, 0, 0]


def test_a_transform_may_give_a_tombstone_a_value(spark: SparkSession) -> None:
    """HoistField does; other transforms leave null, which functions do not receive."""
    found = rows(
        spark,
        [(b"k", None, "hoisted"), (b"k", None, "flat")],
        "topic: hoisted, transforms: [{type: HoistField$Value, field: a}]",
        "topic: flat, transforms: [{type: Flatten$Value}]",
    )
    assert [address_of(bytes(row.target)).typename for row in found] == [
        "a/b",
        "statefun.rejected/null-value",
    ]


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("topic: a", 0),
        ("topic: a, transforms: [{type: Flatten$Value}]", 0),
        ("topic: a, transforms: [{type: RegexRouter, regex: a, replacement: b}]", 0),
        (f"topic: a, {BY_ID}", 1),
    ],
)
def test_only_keys_take_a_step_before_the_shuffle(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], topic: str, expected: int
) -> None:
    """All keys take one vectorised step; without transforms of keys there is none."""
    frame = route(spark.createDataFrame([], COLUMNS), TypeName("a", "in"), routes(topic))
    frame.explain(mode="simple")
    plan = capsys.readouterr().out
    assert plan.count("ArrowEvalPython") == expected
    assert "BatchEvalPython" not in plan
