# SPDX-License-Identifier: Apache-2.0
"""Prepares the files of an embedded Kafka broker: its jars, settings and formatted storage."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from statefun.runtime.spark import jars
from statefun.runtime.spark_internals.class_path import spark_jars_folder
from statefun.sdk.errors import PlatformError

KAFKA = jars.MavenArtifact("org.apache.kafka", "kafka_2.13", "4.3.1")
BROKER_HOST = "127.0.0.1"
READY = "Kafka Server started"
"""The text that the broker writes into its log once it serves clients."""

_SETTINGS = ("log4j2.properties", "server.properties")
"""The files with the settings of a broker, which show that a folder is that of a broker."""
_DATA_FILES = re.compile(
    r"(\.lock|\.kafka_cleanshutdown|bootstrap\.checkpoint|meta\.properties|[a-z-]+-offset-checkpoint)(\.tmp)?"
)
"""The names of the files of storage, besides the folders of partitions."""
_PARTITION = re.compile(r".+-\d+(\.[0-9a-f]+-(delete|future|stray))?")
"""The names of the folders of partitions; other folders may have such names, too."""
_PARTITION_FILES = re.compile(
    r"partition\.metadata|leader-epoch-checkpoint|quorum-state|\d{20}(-\d+)?\.\w+"
)
"""The names of the files of partitions, one of which shows that a folder is that of a partition."""

_LOGGING_JARS = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl")

_CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    # Records stay, however old their timestamps are.
    "log.retention.ms": "-1",
    # A killed broker can start again only when its former session has ended.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",  # the default takes 128 MB of the heap
    "num.network.threads": "2",
    "num.io.threads": "2",
}

_LOGGING = f"""\
status=error
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n%rThrowable{{4}}
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
# says {READY!r}
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=INFO
"""


def find_class_path(progress: Callable[[str], None]) -> str:
    """Return the broker's class path; download jars that are not in the cache.

    Raises:
        PlatformError: if a jar cannot be found.
    """
    # The broker uses the logging jars of Spark.
    shipped = spark_jars_folder()
    logging_jars = [jar for name in _LOGGING_JARS for jar in shipped.glob(f"{name}-[0-9]*.jar")]
    if len(logging_jars) < len(_LOGGING_JARS):
        raise PlatformError(
            f"Spark's folder {shipped} lacks a jar that the broker needs: it must have "
            f"{', '.join(_LOGGING_JARS)}; install pyspark again"
        )
    kafka_jars = jars.resolve([KAFKA], exclude=_LOGGING_JARS, progress=progress)
    return os.pathsep.join(map(str, (*kafka_jars, *logging_jars)))


def prepare_storage(folder: Path, class_path: str) -> None:
    """Prepare the folder of a broker: write the logging settings, and format new storage.

    The storage has the files that ``kafka-storage.sh format`` would write. That script is slow; so it runs once
    for each version of Kafka, and later folders get a copy of its result.

    Args:
        folder: the folder of the broker.
        class_path: the jars of Kafka.

    Raises:
        PlatformError: if the files cannot be written.
    """
    logs = folder / "data"
    with _writing(folder):
        (folder / "log4j2.properties").write_text(_LOGGING)
        (folder / "broker.log").touch()
        if (logs / "meta.properties").exists():
            return
    formatted = _bootstrap_checkpoint(class_path)
    with _writing(folder):
        logs.mkdir(exist_ok=True)
        shutil.copyfile(formatted, logs / "bootstrap.checkpoint")
        _write_properties(logs / "meta.properties", {"version": "1", **_identity()})


def forget(folder: Path) -> None:
    """Delete what a broker has written to its folder; do nothing if the folder is not that of a broker.

    The folder may also be that of a project, whose files stay.

    Raises:
        PlatformError: if a running broker uses the folder.
    """
    if not all((folder / name).is_file() for name in _SETTINGS):
        return
    data = folder / "data"
    lock = data / ".lock"
    if lock.exists():
        with lock.open("r+b") as file:
            try:
                fcntl.lockf(
                    file, fcntl.LOCK_EX | fcntl.LOCK_NB
                )  # Kafka locks the file in the same way
            except OSError:
                raise PlatformError(
                    f"a broker uses the records in {folder}; stop that broker first"
                ) from None
    for path in list(data.iterdir()) if data.is_dir() else ():
        if _is_partition(path):
            shutil.rmtree(path)
        elif _DATA_FILES.fullmatch(path.name) and path.is_file():
            path.unlink()
    # At the end: until then, another attempt finds the folder of a broker.
    for name in ("broker.log", *_SETTINGS):
        (folder / name).unlink(missing_ok=True)
    for each in (data, folder):
        with contextlib.suppress(OSError):  # it has other files, too
            each.rmdir()


def _is_partition(path: Path) -> bool:
    if not _PARTITION.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
        return False
    names = [file.name for file in path.iterdir()]
    # An attempt to delete it may have been killed before its end.
    return not names or any(map(_PARTITION_FILES.fullmatch, names))


def _bootstrap_checkpoint(class_path: str) -> Path:
    """Return the file with the initial feature levels of new storage; create it if the cache lacks it.

    The file is the same for all clusters of a Kafka version, so Kafka's tool runs once, and the
    file stays in the cache. Without the file, a broker starts with old features, such as version 0
    of transactions.
    """
    cached = jars.cache_folder() / "kafka" / f"bootstrap-{KAFKA.version}.checkpoint"
    if cached.exists():
        return cached
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".format-", dir=cached.parent) as work:
        write_settings(Path(work), 9092, 9093, {})
        tool = [jars.java_command(), "-cp", class_path, "kafka.tools.StorageTool", "format"]
        arguments = ["-t", _identity()["cluster.id"], "-c", f"{work}/server.properties"]
        run = subprocess.run([*tool, *arguments], capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise PlatformError(f"Kafka's storage cannot be formatted: {run.stdout}{run.stderr}")
        (Path(work) / "data" / "bootstrap.checkpoint").replace(cached)
    return cached


def _identity() -> dict[str, str]:
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return {"cluster.id": cluster, "node.id": _CONFIG["node.id"]}


def write_settings(folder: Path, port: int, controller: int, config: Mapping[str, str]) -> None:
    """Write the file ``server.properties`` of a broker into a folder.

    Args:
        folder: the folder of the broker.
        port: the port for clients.
        controller: the port of the controller.
        config: further properties, which add to or replace the default ones.

    Raises:
        PlatformError: if the file cannot be written.
    """
    settings = {
        **_CONFIG,
        "controller.quorum.voters": f"{_CONFIG['node.id']}@{BROKER_HOST}:{controller}",
        "listeners": f"PLAINTEXT://{BROKER_HOST}:{port},CONTROLLER://{BROKER_HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{BROKER_HOST}:{port}",
        "log.dir": str(folder / "data"),
        **config,
    }
    with _writing(folder):
        _write_properties(folder / "server.properties", settings)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Name the folder of a broker if the block cannot write there, which Python does not do if the disk is full."""
    try:
        yield
    except OSError as error:
        raise PlatformError(
            f"{folder}: the files of the broker cannot be written there: {error.strerror or error}; make room, or give "
            "the broker another folder"
        ) from error


def _write_properties(file: Path, properties: Mapping[str, str]) -> None:
    # Java reads JSON's escapes in properties files.
    lines = [f"{key}={json.dumps(value)[1:-1]}\n" for key, value in properties.items()]
    file.write_text("".join(lines))
