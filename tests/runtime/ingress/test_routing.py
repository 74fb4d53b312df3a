# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import attrs
import pytest
from pyspark.sql import Row, SparkSession

from statefun.engine.address_keys import address_key, address_of
from statefun.engine.origin import headers_of
from statefun.engine.record_keys import REJECTION_NAMESPACE
from statefun.engine.record_routes import route_number
from statefun.engine.row_flags import ENCODED, REPLAYED
from statefun.module.location import Location
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.ingress.routing import route, route_replays
from statefun.runtime.rows.envelope import ROW_SCHEMA
from statefun.runtime.spark.session import open_session
from statefun.sdk.address import Address, TypeName

pytestmark = pytest.mark.spark

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
IN = TypeName("test", "in")
TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)


@attrs.frozen
class Record:
    """A record as Spark's Kafka source gives it."""

    key: bytes | None
    value: bytes | None = b"value"
    topic: str = "users"
    partition: int = 0
    offset: int = 0
    timestamp: datetime = TIME
    headers: list[tuple[str, bytes | None]] | None = None


def to(topic: str, *targets: str, value_type: str = "test/text") -> TopicRoute:
    """Return the route of a topic's records."""
    names = tuple(map(TypeName.parse, targets))
    return TopicRoute(topic, TypeName.parse(value_type), names, Location("module.yaml", 1, 1))


ROUTE = to("users", "test.fns/one", value_type="io.test/a.B")


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Open a session as applications do."""
    return open_session(debug=False, state_partitions=2)


def routed(spark: SparkSession, records: Sequence[Record], *routes: TopicRoute) -> list[Row]:
    """Route records, and return the rows in the order of their offsets and targets."""
    frame = spark.createDataFrame([attrs.astuple(record) for record in records], COLUMNS)
    rows = route(frame, IN, routes).collect()
    return sorted(rows, key=lambda row: (row.offset, bytes(row.target)))


def address(row: Row) -> Address:
    """Return where a row goes."""
    return address_of(bytes(row.target))


def test_rows_have_the_form_of_all_messages(spark: SparkSession) -> None:
    """Types, names and order of the columns are as the dispatcher expects them."""
    frame = spark.createDataFrame([], COLUMNS)

    rows = route(frame, IN, [to("users", "test.fns/one")])

    assert rows.schema.simpleString() == ROW_SCHEMA.simpleString()


def test_a_record_becomes_a_message_to_the_address_of_its_key(spark: SparkSession) -> None:
    """The row has the unchanged value, its type, and the origin of the record."""
    headers = [("a", b"1"), ("a", None)]
    record = Record(b"Ada", b"\0\xff", partition=3, offset=2**40, headers=headers)

    (row,) = routed(spark, [record], ROUTE)

    assert row.asDict() == {
        "target": bytearray(address_key(Address("test.fns", "one", "Ada"))),
        "offset": 2**40,
        "caller": None,
        "typename": "io.test/a.B",
        "value": bytearray(b"\0\xff"),
        "topic": "users",
        "partition": 3,
        "timestamp": round(TIME.timestamp() * 1000),
        "key": None,
        "headers": '[{"key":"a","value":"MQ=="},{"key":"a"}]',
        "trace": None,
        "route": route_number(IN, ROUTE),
        "flags": 0,
        "event_time": None,
    }


def test_headers_are_the_same_after_their_row(spark: SparkSession) -> None:
    """Any names and values come back in order; a record without headers has null."""
    generator = random.Random(7)
    characters = '"\\/\n\0\x7f\u2028aé€😀'
    sent = [
        [
            (
                "".join(generator.choices(characters, k=generator.randrange(6))),
                generator.choice([None, generator.randbytes(generator.randrange(6))]),
            )
            for _ in range(count % 4)
        ]
        for count in range(200)
    ]
    records = [
        Record(b"a", offset=offset, headers=headers or generator.choice([None, []]))
        for offset, headers in enumerate(sent)
    ]

    rows = routed(spark, records, to("users", "test.fns/one"))

    assert [list(headers_of(row.headers)) for row in rows] == sent
    assert [row.headers is None for row in rows] == [not headers for headers in sent]


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        (None, None),
        ([], None),
        ([("traceparent", b"00-1-2-01")], "traceparent=00-1-2-01"),
        (
            [("baggage", b"a=1"), ("other", b"x"), ("tracestate", b"b=2")],
            "baggage=a=1\ntracestate=b=2",
        ),
        ([("traceparent", None), ("tracestate", b"\xff"), ("baggage", b"a\nb")], None),
    ],
)
def test_trace_context_is_taken_from_headers(
    spark: SparkSession, headers: list[tuple[str, bytes | None]] | None, trace: str | None
) -> None:
    """The three headers of W3C count, if their values are one line of text."""
    (row,) = routed(spark, [Record(b"Ada", headers=headers)], to("users", "test.fns/one"))

    assert row.trace == trace


def test_every_target_has_a_row_of_its_own(spark: SparkSession) -> None:
    """Targets and value type come from the record's topic."""
    records = [Record(b"a", topic="one", offset=1), Record(b"b", topic="two", offset=2)]

    rows = routed(
        spark,
        records,
        to("one", "test.fns/x", "other/y", value_type="test/one"),
        to("two", "test.fns/x", value_type="test/two"),
        to("three", "test.fns/z"),
    )

    assert [(str(address(row)), row.typename, row.topic) for row in rows] == [
        ("other/y/a", "test/one", "one"),
        ("test.fns/x/a", "test/one", "one"),
        ("test.fns/x/b", "test/two", "two"),
    ]


def test_no_records_are_no_rows(spark: SparkSession) -> None:
    """An empty batch stays empty."""
    assert routed(spark, [], to("users", "test.fns/one")) == []


@pytest.mark.parametrize(
    ("record", "id_", "reason"),
    [
        (Record(None), "users/0", "null-key"),
        (Record(None, None, partition=7), "users/7", "null-key"),
        (Record(b""), "", "empty-key"),
        (Record(b"\xff", partition=2), "users/2", "undecodable-key"),
        (Record(b"\xff", None), "users/0", "undecodable-key"),
        (Record(b"Ada", None), "Ada", "null-value"),
    ],
)
def test_a_record_that_no_function_can_receive_is_rejected_once(
    spark: SparkSession, record: Record, id_: str, reason: str
) -> None:
    """However many targets it has, one row goes to the address of the rejection's reason."""
    (row,) = routed(spark, [record], to("users", "test.fns/one", "test.fns/two"))

    assert address(row) == Address(REJECTION_NAMESPACE, reason, id_)
    assert (row.topic, row.partition, row.offset) == ("users", record.partition, 0)
    assert row.value == record.value


def test_a_tombstone_is_delivered_on_request(spark: SparkSession) -> None:
    """With ``tombstones: deliver``, its row has no value."""
    route = attrs.evolve(to("users", "test.fns/one"), delivers_tombstones=True)

    (row,) = routed(spark, [Record(b"Ada", None)], route)

    assert str(address(row)) == "test.fns/one/Ada"
    assert row.value is None


def test_a_value_without_bytes_is_a_value(spark: SparkSession) -> None:
    """Only a missing value is a tombstone; an empty one is a protobuf default."""
    (row,) = routed(spark, [Record(b"Ada", b"")], to("users", "test.fns/one"))

    assert str(address(row)) == "test.fns/one/Ada"
    assert row.value == b""


@pytest.mark.parametrize(
    ("target", "typename", "expected"),
    [
        (b"t.fns/one", b"t/text", "t.fns/one"),
        (b"a/b/one", b"t/text", "a/b/one"),
        (None, b"t/text", "statefun.rejected/no-target"),
        (b"t.fns/one", None, "statefun.rejected/no-target"),
        (b"one", b"t/text", "statefun.rejected/no-target"),
        (b"t.fns/\xff", b"t/text", "statefun.rejected/no-target"),
        (b"t.fns/one", b"\xff/\xff", "statefun.rejected/no-target"),
        (b"t.fns/a\0b", b"t/text", "statefun.rejected/no-target"),
        (b"statefun.timers/bucket", b"t/text", "statefun.rejected/no-target"),
        (b"t.fns/one", b"statefun.failures/retry", "statefun.rejected/no-target"),
    ],
)
def test_replays_go_to_the_target_in_their_headers(
    spark: SparkSession, target: bytes | None, typename: bytes | None, expected: str
) -> None:
    """The target may be any function except the runtime's own; the first header of a name counts."""
    headers = [
        ("other", b"x"),
        ("statefun-target-type", target),
        ("statefun-type", typename),
        ("statefun-type", b"t/other"),
    ]
    frame = spark.createDataFrame([attrs.astuple(Record(b"Ada", headers=headers))], COLUMNS)

    (row,) = route_replays(frame).collect()

    assert str(address(row)) == f"{expected}/Ada"
    assert row.typename == ("" if "rejected" in expected else "t/text")
    assert (row.topic, row.flags) == ("users", REPLAYED)


def test_a_replayed_record_is_deserialized_like_the_first_time(spark: SparkSession) -> None:
    """A value that no deserializer has read goes through it again, also a missing value."""
    headers: list[tuple[str, bytes | None]] = [
        ("statefun-target-type", b"t/f"),
        ("statefun-type", b"t/v"),
        ("statefun-encoded", b"yes"),
    ]
    records = [Record(b"Ada", headers=headers), Record(b"Ada", None, headers=headers)]
    frame = spark.createDataFrame([attrs.astuple(record) for record in records], COLUMNS)

    rows = route_replays(frame).collect()

    assert [(str(address(row)), row.flags) for row in rows] == [("t/f/Ada", REPLAYED | ENCODED)] * 2


def keys() -> list[bytes]:
    """Return keys that are, are not, and nearly are UTF-8."""
    generator = random.Random(5)
    known = [
        b"\0",
        b"a\0b",
        "ä€\N{SNOWMAN}\N{GRINNING FACE}\U0010ffff".encode(),
        b"\xef\xbb\xbfBOM",
        b"\xc0\x80",  # overlong NUL
        b"\xe0\x80\x80",  # overlong
        b"\xf0\x80\x80\x80",  # overlong
        b"\xed\xa0\x80",  # a lone surrogate
        b"\xed\x9f\xbf",  # the last code point before the surrogates
        b"\xee\x80\x80",  # the first code point behind them
        b"\xf4\x90\x80\x80",  # behind the last code point
        b"\xf5\x80\x80\x80",
        b"\x80",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"ok\xfe",
    ]
    pieces = [bytes([byte]) for byte in (0, 65, 128, 143, 144, 159, 160, 191, 194, 195, 224)]
    pieces += [bytes([byte]) for byte in (226, 237, 239, 240, 244, 245, 255)]
    pieces += ["ä".encode(), "€".encode(), "\N{GRINNING FACE}".encode()]
    drawn = [b"".join(generator.choices(pieces, k=generator.randrange(1, 5))) for _ in range(2000)]
    return known + drawn


def decodes(key: bytes) -> bool:
    """Decode a key in Python."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_spark_and_python_agree_on_valid_utf8(spark: SparkSession) -> None:
    """A key that the JVM accepts can be decoded in a worker, and it accepts all such keys."""
    drawn = keys()
    records = [Record(key, offset=offset) for offset, key in enumerate(drawn)]

    rows = routed(spark, records, to("users", "test.fns/one"))

    expected: list[Any] = [
        Address("test.fns", "one", key.decode())
        if decodes(key)
        else Address(REJECTION_NAMESPACE, "undecodable-key", "users/0")
        for key in drawn
    ]
    assert [address(row) for row in rows] == expected
    assert 100 < sum(map(decodes, drawn)) < len(drawn) - 100
