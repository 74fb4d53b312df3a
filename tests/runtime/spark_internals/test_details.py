# SPDX-License-Identifier: Apache-2.0
"""Each detail of Spark's that statefun depends on: these tests fail where a release changes it."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from class_archive import SHORT_LIVED
from patience import SECONDS
from spark_probe_daemon import ODD

from statefun.runtime.spark_internals.class_path import spark_jars_folder
from statefun.runtime.spark_internals.log_files import (
    COMMITS,
    METADATA,
    OFFSETS_FOLDER,
    BatchOffsets,
    check_commit,
    newest_batch,
    query_id,
)
from statefun.runtime.spark_internals.pickled_state import pickled
from statefun.runtime.spark_internals.state_reader import READS_IDS

pytestmark = pytest.mark.spark
origin = pytest.mark.origin
PROBE = Path(__file__).parents[2] / "spark_probe.py"


@attrs.frozen
class Probe:
    """The output of the program."""

    folder: Path
    findings: dict[str, Any]
    errors: str
    """What it and its processes have printed."""

    def __getitem__(self, name: str) -> Any:
        found = self.findings[name]
        if isinstance(found, str) and found.startswith("Traceback"):
            # Of Java's, the second line has the reason.
            errors = re.findall(r"^[\w.]*(?:Error|Exception): .*(?:\n: .*)?", found, re.MULTILINE)
            raise AssertionError(errors[-1].replace("\n", ""))
        return found

    @property
    def checkpoint(self) -> Path:
        """What the query has left, if it has run."""
        _ = self["outcomes"]
        return self.folder / "checkpoint"


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    """Run the program."""
    folder = tmp_path_factory.mktemp("probe")
    paths = [str(PROBE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    unset = ("PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_DIST_CLASSPATH")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["SPARK_SUBMIT_OPTS"] = SHORT_LIVED  # the archive is for another class path
    done = subprocess.run(
        [sys.executable, str(PROBE), str(folder)],
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return Probe(folder, json.loads((folder / "findings.json").read_text()), done.stderr)


@pytest.fixture(autouse=True)
def _detail(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Record the detail that a test is about, for the table of another release of Spark."""
    marker = request.node.get_closest_marker("origin")
    record_property("origin", marker.args[0])
    record_property("detail", request.function.__doc__)


@origin("pyspark/core/context.py: _ensure_initialized, _active_spark_context")
def test_configuration(probe: Probe) -> None:
    """The configuration of a running context is read."""
    assert probe["configuration_of_context"] == "probe"


@origin("SQLConf.scala, internal/config/Python.scala")
def test_settings(probe: Probe) -> None:
    """Settings that are not documented are known."""
    assert probe["unknown_settings"] == []


@origin("SQLConf.scala")
def test_classes(probe: Probe) -> None:
    """The classes that settings name exist."""
    assert probe["unknown_classes"] == []


@origin("pyspark/java_gateway.py: ensure_callback_server_started")
def test_calls_from_the_jvm(probe: Probe) -> None:
    """The JVM calls Python objects."""
    assert probe["called_from_jvm"] is True


@origin("Logging.scala, Log4j 2")
def test_levels_of_logs(probe: Probe) -> None:
    """The loggers of Spark and py4j are off, and other loggers report errors."""
    assert probe["levels_of_logs"] == ["OFF", "OFF", "ERROR"]


@origin("daemon.py, worker.py")
def test_quiet_processes(probe: Probe) -> None:
    """Neither the JVM nor a Python process of Spark's prints anything."""
    assert probe.errors.partition("probe: Spark has started\n")[2] == ""


@origin("MetricsSystem.scala, Dropwizard")
def test_metrics(probe: Probe) -> None:
    """A source of metrics is registered, and its gauges and counters are set and removed."""
    assert probe["gauges"] == [1, 3, 4, 0]


@origin("py4j.protocol.Py4JJavaError.java_exception")
def test_words_of_errors(probe: Probe) -> None:
    """The first words of a Java exception are those of its class and message."""
    assert probe["words_of_errors"] == (
        "java.lang.IndexOutOfBoundsException: Index 3 out of bounds for length 0"
    )


@origin("error-conditions.json")
def test_concurrent_update(probe: Probe) -> None:
    """The error of a log that two drivers write has its name."""
    assert probe["knows_concurrent_update"] is True


@origin("pyspark/cloudpickle")
def test_closures(probe: Probe) -> None:
    """Functions of the main program are pickled by value."""
    assert probe["closure"] == 42


@origin("SharedState.jarClassLoader, SparkSubmit.runMain, SparkContext.addJar")
def test_jars(probe: Probe) -> None:
    """A jar is put on the class path of executors and of all threads of the driver, not only of its session's."""
    assert probe["jars_on_class_path"] == [False, True, True, True, True]


@origin("the package pyspark: jars/")
def test_folder_of_jars() -> None:
    """The jars of an installed PySpark are where they were, with Ivy and Spark among them."""
    names = {path.name for path in spark_jars_folder().iterdir()}

    assert any(name.startswith("spark-sql_2.13-") for name in names)


@origin("Hadoop: FileSystem.getLocal, setWriteChecksum")
def test_files_of_hadoop(probe: Probe) -> None:
    """Local files are written without files of checksums."""
    assert probe["files_of_hadoop"] == [".with.crc", "with", "without"]


@origin("Hadoop: RawLocalFileSystem.setPermission, FilterFileSystem.fs; Janino")
def test_permissions_of_hadoop(probe: Probe) -> None:
    """Java sets the permissions of local files: the same ones as ``chmod`` did."""
    modes = ["-rw-r--r--", "drwxr-xr-x", "-rw-------", "drwxrwxrwt", "drwxr-sr-x"]
    assert probe["permissions_of_hadoop"] == ["LocalFiles", *modes]


@origin("SparkShutdownHookManager; Hadoop: ShutdownHookManager")
def test_hooks_of_shutdown(probe: Probe) -> None:
    """Spark stops in a hook that comes after the one of statefun."""
    first, *others = probe["hooks_of_shutdown"]

    assert first == "java.lang.Thread"
    assert any(name.startswith("org.apache.spark.util.") for name in others)


@origin("FileSystemBasedCheckpointFileManager, RocksDBConf")
def test_files_of_the_checkpoint(probe: Probe) -> None:
    """Spark writes its logs through that file system, and changelogs of the state."""
    folder = probe.checkpoint

    assert list(folder.glob("*/.*.crc")) == []
    assert list(folder.glob("state/0/0/*.changelog")) != []


@origin("StreamExecution.uniqueSources, ReadMaxRows")
def test_limits_of_sources(probe: Probe) -> None:
    """The number of records that a running query reads of a source is changed."""
    assert probe["limits"] == [True, "MaxRows: 7"]


@origin("pyspark/worker.py: read_udfs, read_command; ApplyInPandasWithStateSerializer")
def test_evaluation(probe: Probe) -> None:
    """The operator is evaluated on Arrow batches, in chunks, with the state of each group."""
    assert probe["outcomes"] == [
        ["gone", 0, 1, False],
        ["gone", 1, 2, False],
        ["many", 0, 2, True],
        ["many", 0, 5, False],
        ["many", 1, 6, False],
    ]


@origin("MicroBatchExecution.scala: BATCH_ID_KEY")
def test_batch_number(probe: Probe) -> None:
    """A task knows the number of its micro-batch."""
    assert {batch for _, batch, *_ in probe["outcomes"]} == {0, 1}


@origin("StatePartitionReader.scala, StateManagerImplV2")
def test_stored_state(probe: Probe) -> None:
    """The state of a checkpoint is read by key; a removed state is not in it."""
    if not READS_IDS:
        pytest.skip("Spark 4.0 reads only checkpoints of format 1")
    assert probe["states"] == [["many", list(b"6" + ODD)]]


@origin("net.razorvine.pickle")
@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_pickled_state(size: int) -> None:
    """Spark accepts a pickled tuple as a row, however many bytes its length takes."""
    value = ODD * size

    assert pickle.loads(pickled(value[:size])) == (value[:size],)


@origin("HDFSMetadataLog.scala, OffsetSeqLog.scala")
def test_log_of_offsets(probe: Probe) -> None:
    """The log of offsets has a version, a line about the batch, and one per source."""
    folder = probe.checkpoint / OFFSETS_FOLDER
    content = (folder / "1").read_bytes()
    offsets = BatchOffsets.decode(content, "1")

    assert newest_batch(path.name for path in folder.iterdir()) == 1
    assert list(offsets.sources) == [{"batch": 2}]
    assert BatchOffsets.decode(offsets.encode(), "1") == offsets


@origin("CommitLog.scala")
def test_log_of_commits(probe: Probe) -> None:
    """The log of commits has a version and a line about the batch."""
    folder = probe.checkpoint / COMMITS

    assert newest_batch(path.name for path in folder.iterdir()) == 1
    check_commit((folder / "1").read_bytes(), "1")


@origin("StreamMetadata.scala")
def test_metadata(probe: Probe) -> None:
    """The metadata of a checkpoint has the id of its query."""
    content = (probe.checkpoint / METADATA).read_bytes()

    assert len(query_id(content, METADATA)) == 36


@origin("StreamingRelationV2.scala, MicroBatchExecution.scala, memory.scala")
def test_source_in_the_driver(probe: Probe) -> None:
    """Python objects plan micro-batches; the exception of one ends the query, and is kept."""
    assert [batch for _, batch, *_ in probe["outcomes"]].count(1) == 2
    assert probe["failures"] == [repr("{'batch': 2}")]


@origin("PythonWorkerFactory.scala, SparkEnv.conf")
def test_end_of_daemon(probe: Probe) -> None:
    """Spark says which module its Python daemon lacks."""
    assert probe["end_of_daemon"] == "nowhere"


@origin("py4j: java_gateway, clientserver")
def test_end_of_the_jvm(probe: Probe) -> None:
    """A call of a JVM that was killed raises, and logs nothing; logging is as it was before."""
    assert probe["end_of_jvm"] == [0, 0, 0]


@origin("PythonRunner.scala: PYSPARK_GATEWAY_PORT")
def test_submitted_program(tmp_path: Path) -> None:
    """A program knows whether spark-submit runs it."""
    program = tmp_path / "program.py"
    program.write_text(
        "from statefun.runtime.spark_internals.jvm import is_submitted\n"
        "print('submitted:', is_submitted())\n"
    )
    submit = spark_jars_folder().parent / "bin" / "spark-submit"
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}

    alone, submitted = (
        subprocess.run(
            [*command, str(program)],
            env={**environment, "PYSPARK_PYTHON": sys.executable},
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        ).stdout
        for command in ([sys.executable], [str(submit)])
    )

    assert "submitted: False" in alone
    assert "submitted: True" in submitted


@origin("pyspark.sql.streaming.datasource and others, which are documented")
def test_public_names() -> None:
    """PySpark has all names that statefun imports."""
    assert importlib.import_module("statefun.runtime.application").Application
