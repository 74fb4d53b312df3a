# SPDX-License-Identifier: Apache-2.0
"""The Spark session that an application runs in."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, __version__
from pyspark.sql import SparkSession

from statefun.runtime.dispatch import daemon
from statefun.runtime.settings import is_local_master, running_script
from statefun.runtime.spark.connector import spark_kafka_connector
from statefun.runtime.terminal import renews_lines
from statefun.sdk.errors import ConfigurationError

logger = logging.getLogger("statefun")

_JAVA_22 = 22
_CONNECTOR_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

# Spark logs the stack traces of errors that reach us as exceptions as well, and which the user is
# told in one line, or of calls that a signal has interrupted.
_SILENCED = ("org.apache.spark", "py4j")

_QUERY_CONF = {
    # The default store keeps all state on the heap and writes whole partitions each time.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # In version 1 a late commit of a zombie task overwrites state files.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # It forbids every sort, also our sort within partitions before the stateful operator, which
    # keeps the order of an address's messages however Spark fetches, merges and spills.
    "spark.sql.streaming.unsupportedOperationCheck": "false",
    # Not supported with streaming queries; off, so that Spark does not warn.
    "spark.sql.adaptive.enabled": "false",
}


# Spark's default manager writes through Hadoop's FileContext, whose checksum files cannot be
# switched off.
_LOCAL_CHECKPOINT_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

_DAEMON = "spark.python.daemon.module"
# Over TCP, a worker gets its first rows 40 ms late: Nagle's algorithm on the JVM's side waits for
# the acknowledgement that the kernel delays on the other.
_UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"


def spark_conf() -> dict[str, str]:
    """Return Spark's configuration, before or after a session was made."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to spark-submit's JVM, whose properties SparkConf then reads
    active = SparkContext._active_spark_context  # noqa: SLF001 - no public API tells it
    return dict((active.getConf() if active else SparkConf()).getAll())


def is_submitted() -> bool:
    """Tell whether spark-submit runs the program, so that the JVM exists before the program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def shows_terminal() -> bool:
    """Tell whether standard error ends up on a terminal on which a line can be erased."""
    if not is_submitted():
        return renews_lines(sys.stderr)
    # spark-submit sends it to the standard output of its JVM.
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - classes of the JVM have no other door
    console = jvm.java.lang.System.console()
    if console is None or os.environ.get("TERM") == "dumb":
        return False
    # From Java 22 on there is a console even without a terminal.
    return jvm.java.lang.Runtime.version().feature() < _JAVA_22 or bool(console.isTerminal())


def open_session(*, debug: bool, state_partitions: int | None) -> SparkSession:
    """Return a separate session for the query, on the active Spark context or a new one.

    Raises:
        ConfigurationError: if Spark's configuration breaks the guarantees.
    """
    if not debug:
        _quieten()
    given = spark_conf()
    if is_local_master(given):
        # PySpark's default is the "python3" on the PATH; it reads no configuration.
        python = given.get("spark.pyspark.python", sys.executable)
        os.environ.setdefault("PYSPARK_PYTHON", python)
    builder = SparkSession.builder
    for key, value in _context_conf(given).items():
        builder = builder.config(key, value)
    with _own_interrupts():
        session = builder.getOrCreate().newSession()
    # Spark takes the word in upper case, too.
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation=true would invoke functions twice at the same time; switch it off"
        )
    _add_connector(session)
    for key, value in _QUERY_CONF.items():
        session.conf.set(key, value)
    # Each one costs tens of milliseconds per batch, so not Spark's default of 200.
    partitions = state_partitions or session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", partitions)
    return session


def keep_checkpoint_locally(session: SparkSession) -> None:
    """Make the queries of ``session`` write checkpoints on a local disk the quickest way.

    Hadoop starts a process, chmod, for each local file that it creates, and it creates a file
    with checksums beside each file, though Spark's own checksums cover the checkpoint. Without
    these processes, an almost empty micro-batch takes about half the time on 2 cores. Files still
    appear by an atomic rename.
    """
    for key, value in _LOCAL_CHECKPOINT_CONF.items():
        session.conf.set(key, value)
    jvm: Any = session._jvm  # noqa: SLF001 - classes of the JVM have no other door
    # The one instance of the process, which reads and replaces files with checksums as before.
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(
        session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - see above
    )
    local.setWriteChecksum(False)


def is_local(session: SparkSession) -> bool:
    """Tell whether the workers of ``session`` run on this machine."""
    return is_local_master(dict(session.sparkContext.getConf().getAll()))


def spark_reason(error: BaseException) -> str:
    """Return the first line of an error of Spark, without the stack traces of Java."""
    java = getattr(error, "java_exception", None)
    lines = str(error if java is None else java.toString()).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def can_dispatch_arrow(session: SparkSession) -> bool:
    """Tell whether the workers of ``session`` can evaluate the operator on Arrow batches."""
    active = session.sparkContext.getConf().get(_DAEMON, "pyspark.daemon")
    if active != daemon.MODULE:
        reason = f"the Python worker daemon is {active}"
    elif not __version__.startswith(daemon.TESTED):
        reason = f"it is not tested with PySpark {__version__}"
    else:
        return True
    logger.warning("functions are called through pandas, which is slower: %s", reason)
    return False


def _context_conf(given: dict[str, str]) -> dict[str, str]:
    """Return settings of a new Spark context that the user has not made."""
    script = running_script()
    conf = {_DAEMON: daemon.MODULE, _UNIX_SOCKETS: str(hasattr(socket, "AF_UNIX")).lower()}
    if script:
        conf["spark.app.name"] = script.stem
    if script and is_local_master(given):
        # Workers import the modules beside the program, as the program itself does.
        conf["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(
            [str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    conf = {key: value for key, value in conf.items() if key not in given}
    # Set even if it is given: spark-submit switches it on for every Python program.
    return {"spark.ui.showConsoleProgress": "false", **conf}


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the program's handler of Ctrl-C.

    A new Spark context sets its own handler, which calls Spark from within the interrupted call of
    Spark; this fails with a long text.
    """
    handler = signal.getsignal(signal.SIGINT)
    yield
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _quieten() -> None:
    SparkContext._ensure_initialized()  # noqa: SLF001 - before a context logs its start
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - the only way to Log4j
    # Spark loads its defaults with the first line that it logs, over earlier settings.
    jvm.org.apache.spark.SparkConf(False).initializeLogIfNecessary(False)
    levels = jvm.org.apache.logging.log4j.Level
    configurator = jvm.org.apache.logging.log4j.core.config.Configurator
    configurator.setRootLevel(levels.ERROR)
    for name in _SILENCED:
        configurator.setLevel(name, levels.OFF)
    # Java prints an exception that ends a thread, such as a query that a signal stops.
    # This handler of Spark's executors logs it instead, and ends a JVM that is out of memory.
    handler = jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(handler)


def _add_connector(session: SparkSession) -> None:
    """Put the Kafka connector on the class path of driver and executors, if it is not there."""
    jvm: Any = session._jvm  # noqa: SLF001 - classes of the JVM have no other door
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CONNECTOR_CLASS)
    except Py4JError:
        jars = spark_kafka_connector(progress=lambda text: logger.info("downloading %s", text))
        logger.debug("adding Spark's Kafka connector (%d jars)", len(jars))
        # The same as ADD JAR, which does not take blanks and quotes in a path.
        loader = session._jsparkSession.sharedState().jarClassLoader()  # noqa: SLF001 - see above
        context = session._jsparkSession.sparkContext()  # noqa: SLF001 - see above
        for jar in jars:
            uri = jvm.java.io.File(str(jar)).toURI()
            context.addJar(uri.toString())
            loader.addURL(uri.toURL())
        jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
