# SPDX-License-Identifier: Apache-2.0
"""Opens the Spark session in which an application runs."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import __version__
from pyspark.sql import SparkSession

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.dispatch import daemon
from statefun.runtime.settings import is_local_master, running_script
from statefun.runtime.spark.connector import spark_kafka_connector
from statefun.runtime.spark.store_access import use_store
from statefun.runtime.spark_internals import configuration
from statefun.runtime.spark_internals.class_path import KAFKA_SOURCE, add_jars, has_class
from statefun.runtime.spark_internals.hadoop import start_no_processes, write_no_checksums
from statefun.runtime.spark_internals.jvm import is_submitted, jvm, spark_conf
from statefun.runtime.spark_internals.logs import quieten_jvm
from statefun.runtime.spark_internals.versions import RELEASE, is_tested
from statefun.runtime.terminal.status_line import renews_lines
from statefun.sdk.errors import ConfigurationError

logger = logging.getLogger("statefun")

_APP_NAME = "spark.app.name"
_LOOPBACK = "127.0.0.1"

_REDACTED = r"(?i)secret|password|token|access[.]?key|[?&;][^=]+="
"""The pattern of settings whose values Spark's UI and event logs hide: Spark's default, and queries of URIs."""

_JAVA_22 = 22


def shows_terminal() -> bool:
    """Return whether standard error is shown on a terminal on which a line can be erased."""
    if not is_submitted():
        return renews_lines(sys.stderr)
    # spark-submit sends it to the standard output of its JVM.
    lang = jvm().java.lang
    console = lang.System.console()
    if console is None or os.environ.get("TERM") == "dumb":
        return False
    # From Java 22 on there is a console even without a terminal.
    return int(lang.Runtime.version().feature()) < _JAVA_22 or bool(console.isTerminal())


def open_session(*, debug: bool, state_partitions: int | None, kafka: bool = True) -> SparkSession:
    """Return a separate session for the query, in the active Spark context or a new one.

    Args:
        debug: whether to show Spark's log.
        state_partitions: the number of partitions of the state; None for as many as there are cores.
        kafka: whether the query reads from Kafka.

    Raises:
        ConfigurationError: if a setting of Spark breaks statefun's guarantees.
    """
    if not debug:
        quieten_jvm()
    user_conf = spark_conf()
    if is_local_master(user_conf):
        # PySpark's default is the "python3" on the PATH; it reads no configuration.
        python = user_conf.get("spark.pyspark.python", sys.executable)
        os.environ.setdefault("PYSPARK_PYTHON", python)
    builder = SparkSession.builder
    for key, value in _context_conf(user_conf).items():
        builder = builder.config(key, value)
    with _restored_interrupts():
        session = query_session(builder.getOrCreate(), state_partitions)
    if kafka:
        _add_connector(session)
    return session


def query_session(session: SparkSession, state_partitions: int | None) -> SparkSession:
    """Return a separate session with the settings of the query, in the context of another session.

    Args:
        session: the other session.
        state_partitions: the number of partitions of the state; None for as many as there are cores.

    Raises:
        ConfigurationError: if a setting of Spark breaks statefun's guarantees.
    """
    session = session.newSession()
    # Spark accepts the word in upper case, too.
    if session.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation must be false, but is true: Spark would call functions twice at the same time"
        )
    for key, value in configuration.QUERY.items():
        session.conf.set(key, value)
    # Each partition costs tens of milliseconds per micro-batch: Spark's default of 200 is too many.
    partitions = state_partitions or session.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", partitions)
    return session


def keep_checkpoint_locally(session: SparkSession) -> None:
    """Make the queries of ``session`` write checkpoints on a local disk in the quickest way.

    For each local file that it creates, Hadoop would start a process ``chmod``, and create a further
    file with checksums, though Spark's own checksums cover the checkpoint. Without both, an almost
    empty micro-batch takes about half the time on 2 cores. Files still appear by an atomic rename.
    """
    for key, value in configuration.LOCAL_CHECKPOINT.items():
        session.conf.set(key, value)
    write_no_checksums(session)
    start_no_processes(session)


def use_checkpoint(session: SparkSession, checkpoint: Folder, run: str = "") -> None:
    """Make the queries of ``session`` write a checkpoint in the way that its storage needs.

    Args:
        session: the session.
        checkpoint: the checkpoint.
        run: the id of the run, which is added to each of its commits in a store; empty to add none.

    Raises:
        PlatformError: if this Spark cannot write checkpoints there.
    """
    if checkpoint.is_local:
        keep_checkpoint_locally(session)
    elif checkpoint.is_store:
        use_store(session, checkpoint, run)


def application_name() -> str:
    """Return the name of the application, which Spark shows: that of its program, unless ``spark.app.name`` is set."""
    conf, script = spark_conf(), running_script()
    return conf.get(_APP_NAME) or (script.stem if script else "statefun")


def driver_address(session: SparkSession) -> tuple[str, str]:
    """Return the address at which workers reach this process, and the address at which it must listen."""
    if is_local(session):
        return _LOOPBACK, _LOOPBACK
    conf = session.sparkContext.getConf()
    host = conf.get("spark.driver.host", _LOOPBACK)
    return host, conf.get("spark.driver.bindAddress", host)


def is_local(session: SparkSession) -> bool:
    """Return whether the workers of ``session`` run on this machine."""
    return is_local_master(dict(session.sparkContext.getConf().getAll()))


def has_executors(session: SparkSession) -> bool:
    """Return whether the executors of ``session`` are processes besides the driver, with their own standard error."""
    return re.fullmatch(r"local(\[[^]]*\])?", session.sparkContext.master or "") is None


def dispatches_arrow(session: SparkSession, dispatch: str) -> bool:
    """Return True if functions are called with Arrow batches, False if through pandas; the setting ``dispatch`` decides.

    Raises:
        ConfigurationError: if they would be called through pandas, but this Spark cannot do that.
    """
    if dispatch == "arrow" and _can_dispatch_arrow(session):
        return True
    if RELEASE < (4, 2):  # it fails there if an address gets its rows in more than one batch
        raise ConfigurationError(
            f"with PySpark {__version__}, functions cannot be called through pandas: leave spark.statefun.dispatch and "
            f"{configuration.DAEMON} as they are, or install PySpark 4.2"
        )
    return False


def _can_dispatch_arrow(session: SparkSession) -> bool:
    """Return whether the workers of ``session`` can call functions with Arrow batches; if not, log the reason."""
    daemon_module = session.sparkContext.getConf().get(
        configuration.DAEMON, configuration.SPARKS_DAEMON
    )
    if daemon_module != daemon.MODULE:
        reason = f"the Python worker daemon is {daemon_module}"
    elif not is_tested():
        reason = f"calls with Arrow batches are not tested with PySpark {__version__}"
    else:
        return True
    logger.warning(
        "functions are called through pandas, which is slower than Arrow batches: %s", reason
    )
    return False


def _context_conf(user_conf: dict[str, str]) -> dict[str, str]:
    """Return settings for a new Spark context, without those that the user has set."""
    conf = {
        "spark.redaction.regex": _REDACTED,
        configuration.DAEMON: daemon.MODULE,
        **configuration.WORKERS,
        **configuration.METRICS,
    }
    script = running_script()
    if script:
        conf[_APP_NAME] = script.stem
    if script and is_local_master(user_conf) and not _is_in_package():
        # Workers import modules from the program's folder, as the program itself does.
        conf["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(
            [str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    conf = {key: value for key, value in conf.items() if key not in user_conf}
    # Even if the user has set it: spark-submit switches it on for every Python program.
    return {"spark.ui.showConsoleProgress": "false", **conf}


def _is_in_package() -> bool:
    """Return whether the program was started as ``python -m package.program``.

    The modules next to it then have the names ``package.module``. If workers found them as ``module``, such a
    module would replace a module of Python with the same name.
    """
    return bool(getattr(sys.modules.get("__main__"), "__package__", None))


@contextmanager
def _restored_interrupts() -> Iterator[None]:
    """After the block, restore the program's handler of Ctrl-C, which a new Spark context replaces.

    Spark's handler calls the JVM while it interrupts another call to the JVM; this fails with a long text.
    """
    handler = signal.getsignal(signal.SIGINT)
    yield
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _add_connector(session: SparkSession) -> None:
    """Put Spark's Kafka connector on the class path of driver and executors, if it is not there yet."""
    if has_class(KAFKA_SOURCE):
        return
    jars = spark_kafka_connector(progress=lambda text: logger.info("downloading %s", text))
    logger.debug("adding Spark's Kafka connector (%d jars)", len(jars))
    add_jars(session, jars)
