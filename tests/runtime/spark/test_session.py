# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from statefun.runtime.spark.session import dispatches_arrow, open_session
from statefun.runtime.spark_internals.jvm import spark_conf
from statefun.sdk.errors import ConfigurationError

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def _context() -> None:
    """Start the process's only Spark context the way applications do."""
    open_session(debug=False, state_partitions=None)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        ),
        ("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true"),
        ("spark.sql.streaming.stateStore.checkpointFormatVersion", "2"),
        ("spark.sql.adaptive.enabled", "false"),
    ],
)
def test_state_is_kept_the_way_that_the_guarantees_need(key: str, expected: str) -> None:
    """The session of a query has the state store whose cost follows the changes."""
    session = open_session(debug=False, state_partitions=None)

    assert session.conf.get(key) == expected


@pytest.mark.parametrize(("asked", "expected"), [(3, "3"), (None, "2")])
def test_state_has_as_many_parts_as_there_are_cores_unless_set(
    asked: int | None, expected: str
) -> None:
    """The number of state partitions is the setting's, or that of the cores."""
    session = open_session(debug=False, state_partitions=asked)

    assert session.conf.get("spark.sql.shuffle.partitions") == expected


def test_an_exception_that_ends_a_thread_is_not_printed() -> None:
    """As when a signal stops the context while a query is about to end."""
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - classes of the JVM have no other door
    system, sink, thread = jvm.java.lang.System, jvm.java.io.ByteArrayOutputStream(), jvm.Thread
    before = system.err
    system.setErr(jvm.java.io.PrintStream(sink))
    try:
        current = thread.currentThread()
        error = jvm.java.lang.IllegalStateException("RpcEnv already stopped.")
        current.getThreadGroup().uncaughtException(current, error)  # as Java itself does
    finally:
        system.setErr(before)

    assert sink.toString() == ""


def test_sessions_do_not_disturb_each_other() -> None:
    """Every query has a separate session, on the process's only Spark context."""
    one = open_session(debug=False, state_partitions=5)
    two = open_session(debug=False, state_partitions=7)

    assert one.conf.get("spark.sql.shuffle.partitions") == "5"
    assert two.conf.get("spark.sql.shuffle.partitions") == "7"
    assert one.sparkContext is two.sparkContext


def test_a_session_has_the_kafka_connector() -> None:
    """A Kafka source can be made without anything on the command line."""
    session = open_session(debug=False, state_partitions=None)

    frame = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("subscribe", "users")
        .load()
    )

    assert frame.columns[:3] == ["key", "value", "topic"]


def test_workers_are_reached_through_unix_sockets() -> None:
    """Over TCP every task of a worker would start 40 ms late."""
    assert spark_conf()["spark.python.unix.domain.socket.enabled"] == "true"


def test_sparks_pages_hide_queries_of_uris() -> None:
    """The expression for secret keys and values has Spark's default, and queries of URIs."""
    hidden = SparkContext.getOrCreate().getConf().get("spark.redaction.regex", "")

    for shown in ("abfs://a/b?sig=plan7ed", "s3://a/b?region=x&signature=plan7ed", "my.password"):
        assert re.search(hidden, shown)
    for plain in ("hdfs://namenode/checkpoint", "file:/is it?/here", "-Dkey=value"):
        assert not re.search(hidden, plain)


@pytest.mark.parametrize("word", ["true", "TRUE"])
def test_speculation_is_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts of a task at the same time would both call functions."""
    conf = SparkConf(loadDefaults=False).set("spark.speculation", word)
    monkeypatch.setattr(SparkContext, "getConf", lambda _context: conf)

    with pytest.raises(ConfigurationError) as caught:
        open_session(debug=False, state_partitions=None)

    assert caught.value.message == (
        "spark.speculation must be false, but is true: Spark would call functions twice at the same time"
    )


def test_the_configuration_is_that_of_the_running_context() -> None:
    """Settings of the context, such as spark-submit's, are read."""
    conf = spark_conf()

    assert conf["spark.master"] == "local[2]"
    assert conf["spark.ui.showConsoleProgress"] == "false"


@pytest.mark.parametrize(
    "logger",
    [
        "org.apache.spark.TaskContextImpl",  # when a running task's blocks are gone already
        "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    ],
)
def test_spark_prints_no_stack_traces(logger: str) -> None:
    """The user does not see Spark's log of a stop in the middle of a batch."""
    session = open_session(debug=False, state_partitions=None)

    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - Log4j has no other door

    assert jvm.org.apache.logging.log4j.LogManager.getLogger(logger).getLevel().toString() == "OFF"


def test_spark_before_4_2_calls_no_functions_through_pandas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own code for that fails when an address gets its rows in two batches, so a start says so."""
    session = open_session(debug=False, state_partitions=None)
    assert not dispatches_arrow(session, "pandas")
    monkeypatch.setattr("statefun.runtime.spark.session.RELEASE", (4, 1))

    with pytest.raises(ConfigurationError, match="functions cannot be called through pandas"):
        dispatches_arrow(session, "pandas")
    assert dispatches_arrow(session, "arrow")
