# SPDX-License-Identifier: Apache-2.0
"""A program that uses every detail of Spark's that statefun depends on, and says what it saw.

It starts a Spark of its own, with the folder as its argument, and writes ``findings.json`` there: by
name what was found, or the traceback of what has failed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from stat import filemode
from typing import Any, cast

import pyarrow as pa
from patience import SECONDS
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout
from spark_probe_daemon import Counter

from statefun.runtime.spark_internals import configuration
from statefun.runtime.spark_internals.class_path import KAFKA_SOURCE, add_jars, has_class
from statefun.runtime.spark_internals.closures import pickled_closure, unpickled_closure
from statefun.runtime.spark_internals.driver_source import TASK, planned_tasks
from statefun.runtime.spark_internals.error_texts import first_words, lacking_module
from statefun.runtime.spark_internals.hadoop import start_no_processes, write_no_checksums
from statefun.runtime.spark_internals.jvm import (
    JVM_GONE,
    JvmError,
    accept_calls,
    jvm,
    live_conf,
    new_array,
    spark_conf,
)
from statefun.runtime.spark_internals.logs import quieten_jvm, silent_connections
from statefun.runtime.spark_internals.metrics_system import MetricsSource
from statefun.runtime.spark_internals.read_limits import limit_sources
from statefun.runtime.spark_internals.shutdown import before_spark_stops
from statefun.runtime.spark_internals.state_reader import READS_IDS, in_session, read_states

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
FAILS = "fails"
"""A file that makes the source fail."""
STARTED = "probe: Spark has started"
CHECKPOINT = "checkpoint"
SCHEMA = "target binary, value binary"
NAMES = ["target", "value"]
BATCHES = [["many"] * 5 + ["gone"], ["many", "gone"]]
findings: dict[str, Any] = {}


def finds(function: Callable[..., Any]) -> Callable[..., Any]:
    """Note what a step returns, or how it fails; the next ones are taken all the same."""

    def step(*arguments: Any) -> Any:
        try:
            findings[function.__name__] = function(*arguments)
        except Exception:  # noqa: BLE001 - that is the finding
            findings[function.__name__] = traceback.format_exc()
        return findings[function.__name__]

    return step


class Numbers:
    """A source of two batches, whose tasks are numbers; it fails when there is no third one."""

    def __init__(self) -> None:
        self._next = 0

    def initial_offset(self) -> dict[str, int]:
        """Begin at the first batch."""
        return {"batch": 0}

    def latest_offset(self, start: dict[str, int]) -> dict[str, int]:
        """Tell of one more batch each time."""
        if self._next == len(BATCHES) and (FOLDER / FAILS).exists():
            raise KeyError(str(start))
        self._next = min(self._next + 1, len(BATCHES))
        return {"batch": self._next}

    def tasks(self, start: dict[str, int], end: dict[str, int]) -> list[bytes]:
        """Read each batch in a task."""
        return [b"%d" % number for number in range(start["batch"], end["batch"])]

    def bound(self) -> None:
        """Have no end of its own."""

    def stop(self) -> None:
        """Hold nothing."""


def read(tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks."""
    for batch in tasks:
        for task in batch.column(TASK).to_pylist():
            keys = [key.encode() for key in BATCHES[int(task)]]
            yield pa.record_batch([pa.array(keys), pa.repeat(b"\xff", len(keys))], NAMES)


@finds
def configuration_of_context() -> str:
    """Read the context's configuration."""
    return spark_conf()["spark.app.name"]


@finds
def unknown_settings() -> list[str]:
    """Find the settings that this Spark does not know."""
    entries = jvm().org.apache.spark.internal.config.ConfigEntry
    keys = [configuration.DAEMON, *configuration.WORKERS, configuration.RETAINED]
    keys += [key for key in configuration.QUERY if "rocksdb" not in key]
    return [key for key in keys if entries.findEntry(key) is None]


@finds
def unknown_classes() -> list[str]:
    """Find the classes that this Spark does not have."""
    values = [*configuration.QUERY.values(), *configuration.LOCAL_CHECKPOINT.values()]
    return [name for name in values if name.startswith("org.") and not has_class(name)]


@finds
def called_from_jvm() -> bool:
    """Let a thread of the JVM call Python."""
    accept_calls()
    called = threading.Event()

    class Call:
        def run(self) -> None:
            called.set()

        class Java:
            implements = ("java.lang.Runnable",)

    jvm().java.lang.Thread(Call()).start()
    return called.wait(SECONDS)


@finds
def levels_of_logs() -> list[str]:
    """Read the levels of Spark's loggers."""
    manager = jvm().org.apache.logging.log4j.LogManager
    names = ("org.apache.spark.TaskContextImpl", "py4j.x", "org.other")
    return [manager.getLogger(name).getLevel().toString() for name in names]


@finds
def jars_on_class_path(session: SparkSession) -> list[Any]:
    """Add a jar whose path is awkward."""
    jar = FOLDER / "a 'quoted' jar.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr("probe.txt", "here")
    before = has_class(KAFKA_SOURCE)
    add_jars(session, [jar])
    loader = jvm().java.lang.Thread.currentThread().getContextClassLoader()
    found = [each.getResource("probe.txt") is not None for each in (loader, loader.getParent())]
    return [before, *found, has_class("java.lang.String"), "quoted" in str(_jars(session))]


def _jars(session: SparkSession) -> str:
    return str(session._jsparkSession.sparkContext().listJars().toString())  # noqa: SLF001


@finds
def files_of_hadoop(session: SparkSession) -> list[str]:
    """Create a file with checksums, and one without."""
    hadoop = jvm().org.apache.hadoop
    local = hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration())
    local.setWriteChecksum(True)
    folder = FOLDER / "hadoop"
    local.create(hadoop.fs.Path(f"{folder}/with")).close()
    write_no_checksums(session)
    local.create(hadoop.fs.Path(f"{folder}/without")).close()
    return sorted(path.name for path in folder.iterdir())


@finds
def permissions_of_hadoop(session: SparkSession) -> list[str]:
    """Create a file and a folder after the file system was replaced, twice; set other permissions."""
    start_no_processes(session)
    start_no_processes(session)
    hadoop = jvm().org.apache.hadoop
    local = hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration())
    folder = FOLDER / "permissions"
    file, shared = folder / "file", folder / "shared"
    local.create(hadoop.fs.Path(f"{file}")).close()
    found = [file.stat().st_mode, folder.stat().st_mode]
    local.setPermission(hadoop.fs.Path(f"{file}"), hadoop.fs.permission.FsPermission("600"))
    local.mkdirs(hadoop.fs.Path(f"{shared}"))
    local.setPermission(hadoop.fs.Path(f"{shared}"), hadoop.fs.permission.FsPermission("1777"))
    found += [file.stat().st_mode, shared.stat().st_mode]
    shared.chmod(0o2700)  # chmod keeps the group of what is created in it
    local.setPermission(hadoop.fs.Path(f"{shared}"), hadoop.fs.permission.FsPermission("755"))
    found.append(shared.stat().st_mode)
    return [str(local.getRawFileSystem().getClass().getName()), *map(filemode, found)]


@finds
def hooks_of_shutdown() -> list[str]:
    """Add a hook, and read in which order the JVM would call it and those of Spark and Hadoop."""
    packages = jvm()
    manager = packages.org.apache.hadoop.util.ShutdownHookManager.get()
    lang = packages.java.lang
    nothing = new_array(lang.Class, [])
    in_order = manager.getClass().getDeclaredMethod("getShutdownHooksInOrder", nothing)
    in_order.setAccessible(True)
    with before_spark_stops(lambda: None, timedelta(seconds=1)):
        entries = in_order.invoke(manager, new_array(lang.Object, []))
    hooks = []
    for entry in entries:
        hook = entry.getClass().getDeclaredField("hook")
        hook.setAccessible(True)
        hooks.append(str(hook.get(entry).getClass().getName()))
    return hooks


@finds
def gauges() -> list[int]:
    """Set gauges and a counter, and read them where a sink would."""
    source = MetricsSource("probe")
    again = MetricsSource("probe")
    source.set("one", 1)
    again.set("two", 2)
    again.set("two", 3)
    system = jvm().org.apache.spark.SparkEnv.get().metricsSystem()
    source.count("three", 3)
    source.count("three", 4)
    registry = system.getSourcesByName("probe").head().metricRegistry()
    found = registry.getGauges()
    values = [found["one"].getValue(), found["two"].getValue()]
    values.append(registry.getCounters()["three"].getCount())
    source.clear()
    again.clear()
    return [*values, len(registry.getMetrics())]


@finds
def outcomes(session: SparkSession) -> list[Any]:
    """Run a query of two micro-batches on the probe's operator."""
    found: list[Any] = []

    def stage(frame: DataFrame, _: int) -> None:
        found.extend(json.loads(bytes(row.outcome)) for row in frame.collect())

    failures: list[Exception] = []
    rows = planned_tasks(session, "probe", Numbers(), failures.append).mapInArrow(read, SCHEMA)
    query = (
        rows.groupBy("target")
        .applyInPandasWithState(
            Counter().__call__,
            outputStructType="outcome binary",
            stateStructType="state binary",
            outputMode="append",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
        .writeStream.foreachBatch(stage)
        .option("checkpointLocation", str(FOLDER / CHECKPOINT))
        .start()
    )
    try:
        while sum(batch == 1 for _, batch, *_ in found) < len(BATCHES[1]):
            query.processAllAvailable()
        is_limited = limit_sources(query, [7])
        sources = cast("Any", query)._jsq.streamingQuery().uniqueSources()  # noqa: SLF001 - it has no public name
        findings["limits"] = [is_limited, str(sources.values().head())]
        (FOLDER / FAILS).touch()
        with suppress(StreamingQueryException):
            query.awaitTermination(60)
    finally:
        query.stop()
    findings["failures"] = [str(failure) for failure in failures]
    return sorted(found)


@finds
def states(session: SparkSession) -> list[Any]:
    """Read the state of the query."""
    if not READS_IDS:
        return []
    states = read_states(session.newSession(), str(FOLDER / CHECKPOINT), "target", "state")
    rows = in_session(states, session).collect()
    return [[bytes(row.target).decode(), list(bytes(row.state))] for row in rows]


@finds
def words_of_errors() -> str:
    """Read what an exception of Java says."""
    try:
        jvm().java.util.ArrayList().get(3)
    except JvmError as error:
        return first_words(error)
    return "none"


@finds
def knows_concurrent_update() -> bool:
    """Look for the name among Spark's errors."""
    reader = jvm().org.apache.spark.SparkThrowableHelper.errorReader()
    return bool(reader.errorInfoMap().contains("CONCURRENT_STREAM_LOG_UPDATE"))


@finds
def end_of_daemon() -> str | None:
    """Run a task whose daemon's module does not exist."""
    context = SparkContext.getOrCreate()
    context.environment["PROBE"] = "a daemon of its own"
    live_conf().set(configuration.DAEMON, "nowhere.daemon")
    try:
        context.parallelize([1], 1).map(str).count()
    except Exception as error:  # noqa: BLE001 - it is of another class in each release
        return lacking_module(str(error))
    return None


@finds
def closure() -> int:
    """Pickle a function of this program by value."""
    offset = 41

    def add(number: int) -> int:
        return number + offset

    content = pickled_closure(add)
    del add
    return int(unpickled_closure(content)(1))


@finds
def end_of_jvm() -> list[Any]:
    """Kill the JVM, and call it."""
    process = SparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001
    root = logging.getLogger()
    root.handlers.clear()  # such as py4j makes, if another step has failed
    with silent_connections():
        process.kill()
        process.wait()
        for _ in range(3):
            try:
                jvm().java.lang.System.currentTimeMillis()
            except JVM_GONE:
                continue
            return ["alive"]
    return [len(root.filters), len(root.handlers), logging.getLogger("py4j").level]


def main() -> None:
    """Take all steps."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    quieten_jvm()
    builder = SparkSession.builder.master("local[2]").appName("probe")
    for key, value in {
        **configuration.QUERY,
        **configuration.LOCAL_CHECKPOINT,
        configuration.DAEMON: "spark_probe_daemon",
        **configuration.WORKERS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        # The rows of one group fill several batches.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    print(STARTED, file=sys.stderr)  # noqa: T201 - what Spark's launcher prints is before it
    for step in (configuration_of_context, unknown_settings, unknown_classes, called_from_jvm):
        step()
    for step in (levels_of_logs, gauges, words_of_errors, knows_concurrent_update, closure):
        step()
    for step in (jars_on_class_path, files_of_hadoop, permissions_of_hadoop, outcomes, states):
        step(session)
    for step in (hooks_of_shutdown, end_of_daemon, end_of_jvm):
        step()
    (FOLDER / "findings.json").write_text(json.dumps(findings))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), closing(sys.stdout):
        main()
