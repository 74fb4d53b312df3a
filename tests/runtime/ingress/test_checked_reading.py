# SPDX-License-Identifier: Apache-2.0
"""Mistakes of other packages' readers, each of which is one sentence that names the ingress."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import attrs
import pyarrow as pa
import pytest
from finished_futures import finished
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from statefun.components import ConnectorIngress, TopicRoute
from statefun.components.running import RECORDS, RECORDS_ARROW, Offset
from statefun.engine.call_limits import GROUP_SIZES
from statefun.module.connectors import owner_of
from statefun.module.location import Location
from statefun.runtime.calls.worker_calls import company_of_worker
from statefun.runtime.connector_failures import named_failures
from statefun.runtime.ingress.checked_reading import (
    CheckedSource,
    checked_batches,
    with_checked_rows,
)
from statefun.runtime.ingress.connector_source import read_connector
from statefun.runtime.reporting.explanation import error_of_task
from statefun.runtime.spark.session import open_session
from statefun.sdk.address import TypeName
from statefun.sdk.errors import ConnectorError

PLACE = Location("module.yaml", 3, 1)
OWNER = f"ingress t/in (numbers, module.yaml:3:1): {__name__}:read"
NAMED = re.escape(OWNER)


def route(topic: str, *, is_pattern: bool = False) -> TopicRoute:
    """Return the route of a topic."""
    made = TopicRoute(topic, TypeName("t", "text"), (TypeName("t", "sum"),), PLACE)
    return attrs.evolve(made, is_pattern=is_pattern)


ROUTES = (route("users"), route("orders-[0-9]", is_pattern=True))
INGRESS = ConnectorIngress(TypeName("t", "in"), "numbers", ROUTES, PLACE, f"{__name__}:read")


def read(reading: Any) -> object:
    """Return what a test wants."""
    return reading.read(reading.session)


@attrs.frozen
class Read:
    """What a reader needs here."""

    session: SparkSession
    read: Callable[[SparkSession], object]
    ingress: ConnectorIngress = INGRESS


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Open a session as applications do."""
    return open_session(debug=False, state_partitions=2)


def streaming(spark: SparkSession, **columns: str) -> DataFrame:
    """Return a stream of records with other types of some columns, or without them."""
    types = {field.name: field.dataType.simpleString() for field in RECORDS} | columns
    rate = spark.readStream.format("rate").load()
    return rate.select(
        *(F.lit(None).cast(type_).alias(name) for name, type_ in types.items() if type_)
    )


def fail(spark: SparkSession) -> DataFrame:
    """Fail as a client would."""
    del spark
    raise KeyError("address")


WRONG: list[tuple[Callable[[SparkSession], object], str]] = [
    (lambda _: None, "must return a streaming DataFrame, but has returned None"),
    (lambda _: ["a"], "must return a streaming DataFrame, but has returned a list"),
    (
        lambda spark: spark.createDataFrame([], RECORDS),
        "but has returned a DataFrame that is not streaming; make it with session.readStream",
    ),
    (
        lambda spark: streaming(spark, partition="", offset="string"),
        "there is no column partition (int); offset is of type string instead of bigint",
    ),
    (
        lambda spark: streaming(spark, headers="map<string,binary>"),
        "headers is of type map<string,binary> instead of array<struct<key:string,value:binary>>",
    ),
    (lambda spark: streaming(spark, Key="binary"), "there are 2 columns key"),
    (fail, "KeyError: 'address'"),
    (
        lambda spark: spark.readStream.format("none").load(),
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: none",
    ),
]


@pytest.mark.spark
@pytest.mark.parametrize(("returned", "problem"), WRONG)
def test_what_a_reader_returns_is_checked(
    spark: SparkSession, returned: Callable[[SparkSession], object], problem: str
) -> None:
    """The query does not start if the reader does not return a streaming DataFrame of records."""
    with pytest.raises(ConnectorError, match=f"{NAMED}.*{re.escape(problem)}"):
        read_connector(Read(spark, returned))  # type: ignore[arg-type]


@pytest.mark.spark
def test_further_columns_are_left_out(spark: SparkSession) -> None:
    """Routing neither sees further columns of a reader nor confuses them with its own, whatever their names."""
    made = streaming(spark, key="", KEY="binary", id="int", suffix="string")
    rows = read_connector(Read(spark, lambda _: made))  # type: ignore[arg-type]

    assert rows.isStreaming
    assert "suffix" not in rows.columns


RECORD: dict[str, Any] = {
    "key": b"Ada",
    "value": b"1",
    "topic": "users",
    "partition": 0,
    "offset": 7,
    "timestamp": datetime(2026, 1, 2, tzinfo=timezone.utc),
    "headers": [{"key": "a", "value": None}],
}


def checked(spark: SparkSession, record: dict[str, Any]) -> list[Any]:
    """Return what becomes of a record."""
    frame = spark.createDataFrame([record], RECORDS)
    return with_checked_rows(OWNER, frame, ROUTES).collect()


@pytest.mark.spark
@pytest.mark.parametrize("change", [{}, {"topic": "orders-1"}, {"headers": None}, {"headers": []}])
def test_records_with_a_route_and_a_place_are_taken(
    spark: SparkSession, change: dict[str, Any]
) -> None:
    """The check does not change such records; one without key or value is rejected later, by the ingress's policy."""
    record = RECORD | {"key": None, "value": None} | change

    [row] = checked(spark, record)

    assert (row.topic, row.offset, row.headers is None) == (
        *(record["topic"], 7),
        record["headers"] is None,
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    "change",
    [
        *({"topic": "others"}, {"topic": "orders-10"}, {"topic": None}, {"partition": None}),
        *({"offset": None}, {"timestamp": None}, {"headers": [{"key": None, "value": b""}]}),
    ],
)
def test_a_record_without_a_route_or_a_place_ends_the_run(
    spark: SparkSession, change: dict[str, Any]
) -> None:
    """Without the check, the record would have no target or no order, and would be lost or moved silently."""
    with pytest.raises(Exception, match="a topic that a route takes") as failed:
        checked(spark, RECORD | change)

    error = error_of_task(str(failed.value))
    assert isinstance(error, ConnectorError)
    assert error.message.startswith(f"{OWNER} has returned a record {{")
    place = {name: value for name, value in change.items() if name != "headers"}
    for name, value in place.items():
        assert (f'"{name}":"{value}"' in error.message) == (value is not None)


class Source:
    """A source with one mistake."""

    def __init__(self, **returned: object) -> None:
        self._returned = {"offset": {"records": 0}, "tasks": [b""]} | returned

    def initial_offset(self) -> Any:
        """Return the position before everything."""
        return self._returned["offset"]

    def latest_offset(self, start: Any) -> Any:
        """Return the next one."""
        del start
        return self._returned["offset"]

    def tasks(self, start: Any, end: Any) -> Any:
        """Return the tasks."""
        del start, end
        return self._returned["tasks"]

    def bound(self) -> None:
        """Need no bound."""

    def stop(self) -> None:
        """Hold nothing."""


def test_offsets_and_tasks_of_a_source_are_checked() -> None:
    """Otherwise Spark would take 'null' for an offset, and a number for as many bytes."""
    problem = (
        rf"{NAMED}: the method initial_offset must return an offset \(.*, but has returned None"
    )
    with pytest.raises(ConnectorError, match=problem):
        CheckedSource(OWNER, Source(offset=None)).initial_offset()
    with pytest.raises(
        ConnectorError, match=f"{NAMED}: the method latest_offset must .* returned 3"
    ):
        CheckedSource(OWNER, Source(offset=3)).latest_offset({})
    with pytest.raises(
        ConnectorError, match=f"{NAMED}: the method tasks must return bytes .* returned a int"
    ):
        CheckedSource(OWNER, Source(tasks=[3])).tasks({}, {})
    with pytest.raises(
        ConnectorError, match=f"{NAMED}: a source must have a method initial_offset, and object"
    ):
        CheckedSource(OWNER, object())  # type: ignore[arg-type]


def test_a_source_that_is_not_read_is_asked_once_whether_it_has_more() -> None:
    """The micro-batch that reads it later ends at the offset that the source has returned."""

    class Counting(Source):
        """A source with two records, in two micro-batches."""

        asked = 0

        def latest_offset(self, start: Offset) -> Offset:
            """Return the next one of two."""
            self.asked += 1
            return {"records": min(start["records"] + 1, 2)}

    own, may_read = Counting(), [False]
    source = CheckedSource(OWNER, own, lambda: may_read[0])
    assert source.has_more()
    assert source.latest_offset({"records": 0}) == {"records": 0}
    assert (source.has_more(), source.has_more(), own.asked) == (True, True, 1)
    may_read[0] = True
    assert source.latest_offset({"records": 0}) == {"records": 1}
    assert own.asked == 1
    assert source.latest_offset({"records": 1}) == {"records": 2}
    assert (source.has_more(), own.asked) == (False, 3)


def test_a_source_that_is_read_says_whether_the_micro_batch_has_records() -> None:
    """It is not asked for that again: its answer in this planning counts, and not one of an earlier planning."""

    class Two(Source):
        """A source with two records, in two micro-batches."""

        def latest_offset(self, start: Offset) -> Offset:
            """Return the next one of two."""
            return {"records": min(start["records"] + 1, 2)}

    source = CheckedSource(OWNER, Two())
    assert not source.has_next(None)
    assert not source.has_next({"records": 0})
    source.latest_offset({"records": 0})
    assert source.has_next({"records": 0})
    assert not source.has_next({"records": 1})
    source.latest_offset({"records": 1})
    source.latest_offset({"records": 2})
    assert not source.has_next({"records": 2})


def test_a_source_that_fails_while_it_is_not_read_is_named() -> None:
    """The thread that asks it plans another source."""

    class Failing(Source):
        """A source whose server has gone."""

        def latest_offset(self, start: Offset) -> Offset:
            """Fail."""
            raise OSError("no route to host")

    source = CheckedSource(OWNER, Failing(), lambda: False)
    start = source.initial_offset()
    assert source.latest_offset(start) == start
    with pytest.raises(ConnectorError, match=rf"{re.escape(OWNER)}: .*no route to host"):
        source.has_more()


def test_offsets_tasks_and_metrics_of_a_source_are_passed_on() -> None:
    """A source without metrics stays without them."""
    source = CheckedSource(OWNER, Source())
    assert (source.initial_offset(), source.tasks({}, {})) == ({"records": 0}, [b""])
    assert not hasattr(source, "metrics")
    measured = Source()
    measured.metrics = dict  # type: ignore[attr-defined]
    assert CheckedSource(OWNER, measured).metrics() == {}


def batches(read: Callable[[bytes], Any]) -> list[pa.RecordBatch]:
    """Return what a task yields."""
    return list(checked_batches(OWNER, read, b"task", RECORDS_ARROW))


def test_batches_of_a_task_are_checked() -> None:
    """Spark identifies their columns by position, so wrong columns would go unnoticed."""

    def failing(task: bytes) -> Iterator[pa.RecordBatch]:
        yield good
        raise KeyError(task)

    good = pa.RecordBatch.from_pylist([RECORD], RECORDS_ARROW)
    assert batches(lambda _: [good]) == [good]
    with pytest.raises(
        ConnectorError, match=f"{NAMED}: the connector must yield Arrow .* yielded a dict"
    ):
        batches(lambda _: [RECORD])
    with pytest.raises(ConnectorError, match=f"{NAMED}: reading .* the columns key: binary, "):
        batches(lambda _: [good.drop_columns(["value"])])
    with pytest.raises(ConnectorError, match=f"{NAMED}: TypeError: 'NoneType' object is not iter"):
        batches(lambda _: None)
    with pytest.raises(ConnectorError, match=f"{NAMED}: KeyError: b'task'"):
        batches(failing)


def test_errors_of_statefun_stay_as_they_are() -> None:
    """They name their component and a remedy already."""
    error = ConnectorError("there is no such list; make it")

    with pytest.raises(ConnectorError) as raised, named_failures(OWNER):
        raise error

    assert raised.value is error


def test_a_component_is_described_by_its_kind_and_place() -> None:
    """The description has all that its author needs to find it."""
    assert owner_of(INGRESS) == OWNER


def test_a_connector_does_not_read_while_a_call_runs_alone() -> None:
    """If it ended the process, the driver would take the call for the reason."""
    company, events = company_of_worker(), list[str]()

    def read(_task: bytes) -> Iterator[pa.RecordBatch]:
        events.append("read")
        yield from ()

    async def run_alone() -> None:
        async with company.again(len(GROUP_SIZES), lambda: finished(None)):
            reading = asyncio.create_task(
                asyncio.to_thread(list, checked_batches(OWNER, read, b"task", RECORDS_ARROW))
            )
            await asyncio.sleep(0.2)
            events.append("call ends")
        await reading

    asyncio.run(run_alone())

    assert events == ["call ends", "read"]
