# SPDX-License-Identifier: Apache-2.0
"""Runs a real Apache Kafka broker on this machine, for development and tests."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import final

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from statefun.dev.dev_topics import create_topic
from statefun.dev.kafka_storage import (
    BROKER_HOST,
    KAFKA,
    READY,
    find_class_path,
    prepare_storage,
    write_settings,
)
from statefun.runtime.kafka.client import reason_of
from statefun.runtime.spark import jars
from statefun.sdk.errors import KafkaError, PlatformError

# Below the range from which systems pick ports for outgoing connections: while a broker is down,
# a client that retries could otherwise get the broker's port for its own end, and occupy it.
_PORTS = range(20_000, 32_000)
_PORT_ATTEMPTS = 3
_POLL = timedelta(milliseconds=25)
_STOP_TIMEOUT = timedelta(seconds=10)
_ADMIN_TIMEOUT = timedelta(seconds=30)
_LINES_SHOWN = 20
_NO_ANSWER = {ClientError._TIMED_OUT, ClientError.REQUEST_TIMED_OUT}  # noqa: SLF001 - its public name
_PORT_TAKEN = "java.net.BindException"
_JVM_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    # The broker runs for a short time on a few cores: start quickly, leave the cores to Spark.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)

# This program runs the broker as its child, and kills it when its standard input is closed: this
# happens when the process that owns the broker ends, for whatever reason. (Linux's parent-death
# signal would arrive as soon as the *thread* that started the broker ends.)
_GUARD = """\
import os, shutil, subprocess, sys, threading

folder, *command = sys.argv[1:]
broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
print(broker.pid, flush=True)
orphaned = threading.Event()

def watch():
    os.read(0, 1)
    orphaned.set()
    broker.kill()

threading.Thread(target=watch, daemon=True).start()
broker.wait()
if orphaned.is_set() and folder:
    shutil.rmtree(folder, ignore_errors=True)
"""


@final
class EmbeddedKafka:
    """A Kafka cluster of one broker (in KRaft mode) that runs in a child process, on loopback only.

    Use an EmbeddedKafka as a context manager, or call ``start`` and ``stop``. The broker ends with the
    process that has started it, at the latest. A Ctrl-C in the terminal does not reach the broker.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        data: Path | None = None,
        config: Mapping[str, str] | None = None,
        start_timeout: timedelta = timedelta(seconds=60),
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Store the settings of a broker; ``start`` starts it.

        Args:
            port: The port for clients; by default a free port, which the broker keeps until
                ``stop``.
            data: The folder for records, settings and log, which ``stop`` keeps; by default a
                temporary folder, which ``stop`` deletes.
            config: Broker properties, which add to or replace the default ones.
            start_timeout: How long the broker may take until it serves clients.
            progress: Called during a start, with a short text that names the current step.
        """
        self._wanted_port = port
        self._wanted_data = data
        self._config = dict(config or {})
        self._start_timeout = start_timeout
        self._progress = progress or (lambda _: None)
        self._port: int | None = None
        self._folder: Path | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._pid = 0
        self._log_offset = 0

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of the broker, for clients; ``kill`` and ``restart`` do not change them."""
        if self._port is None:
            raise PlatformError("the embedded Kafka has not been started; call start first")
        return f"{BROKER_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        self._require_running()
        return self._pid

    @property
    def log_file(self) -> Path:
        """The file with the output of all starts of the broker since the broker's folder was created."""
        if self._folder is None:
            raise PlatformError("the embedded Kafka has not been started; call start first")
        return self._folder / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the process of the broker exists; a paused broker counts as running."""
        return self._guard is not None and self._guard.poll() is None

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> EmbeddedKafka:
        """Start the broker and wait until it serves clients; do nothing if it runs already.

        Raises:
            PlatformError: Java or jars are missing, another process uses the port, or the broker
                does not serve clients in time; the error text has the broker's last output.
        """
        if self.running:
            return self
        self._reap()
        class_path = find_class_path(self._progress)
        is_new = self._folder is None
        if self._folder is None:
            self._folder = self._make_folder()
            atexit.register(self._stop_at_exit, os.getpid())
        try:
            prepare_storage(self._folder, class_path)
            self._start_on_free_ports(self._folder, class_path)
        except BaseException:  # the process has to end also after Ctrl-C
            self._end(signal.SIGKILL)
            if is_new:
                self.stop()
            raise
        return self

    def stop(self) -> None:
        """Shut the broker down, or kill the broker if that takes too long; delete a temporary folder."""
        self._end(signal.SIGTERM)
        atexit.unregister(self._stop_at_exit)
        if self._folder is not None and self._wanted_data is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
        self._port = None

    def kill(self) -> None:
        """Kill the broker, as in a crash; a later ``start`` starts it again with its records.

        Raises:
            PlatformError: The broker is not running.
        """
        self._require_running()
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Shut the broker down if it runs, and start it again with the same records and port.

        Raises:
            PlatformError: As for ``start``.
        """
        self._end(signal.SIGTERM)
        self.start()

    def pause(self) -> None:
        """Freeze the broker: its connections stay open, but it answers no requests.

        Raises:
            PlatformError: The broker is not running.
        """
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker continue.

        Raises:
            PlatformError: The broker is not running.
        """
        os.kill(self.pid, signal.SIGCONT)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until all of its partitions can be used.

        Raises:
            KafkaError: The broker does not create the topic, for example because it exists.
            PlatformError: The broker is not running.
        """
        self._require_running()
        admin = _admin(self.bootstrap_servers)
        try:
            create_topic(admin, name, partitions, config or {}, _ADMIN_TIMEOUT)
        except (KafkaException, FutureTimeoutError) as error:
            message = f"cannot create topic {name!r}: {error}"
            if not isinstance(error, KafkaException) or reason_of(error).code() in _NO_ANSWER:
                message += f"; {_last_lines(self._log())}"
            raise KafkaError(message) from error

    def _make_folder(self) -> Path:
        if self._wanted_data is None:
            return Path(tempfile.mkdtemp(prefix="statefun-kafka-"))
        self._wanted_data.mkdir(parents=True, exist_ok=True)
        return self._wanted_data.absolute()

    def _start_on_free_ports(self, folder: Path, class_path: str) -> None:
        for attempt in range(_PORT_ATTEMPTS):
            port = self._port or self._wanted_port or _free_port()
            if not _is_free(port):
                raise PlatformError(
                    f"another process uses port {port} of {BROKER_HOST}; stop that process, or choose "
                    "another port",
                )
            write_settings(folder, port, _free_port(but=port), self._config)
            self._progress(f"starting Apache Kafka {KAFKA.version} on {BROKER_HOST}:{port}")
            self._launch(folder, class_path)
            failure = self._wait_until_ready(f"{BROKER_HOST}:{port}")
            if failure is None:
                self._port = port
                return
            log = self._log()
            self._end(signal.SIGKILL)
            if _PORT_TAKEN not in log or attempt == _PORT_ATTEMPTS - 1:
                raise PlatformError(f"the embedded Kafka {failure}; {_last_lines(log)}")

    def _launch(self, folder: Path, class_path: str) -> None:
        command = [
            jars.java_command(),
            *_JVM_OPTIONS,
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
            *("-cp", class_path, "kafka.Kafka", str(folder / "server.properties")),
        ]
        temporary = "" if self._wanted_data else str(folder)
        with self.log_file.open("ab") as log:
            self._log_offset = log.seek(0, os.SEEK_END)
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD, temporary, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that a Ctrl-C in the terminal does not reach it
            )
        first_line = self._guard.stdout.readline() if self._guard.stdout else ""
        self._pid = int(first_line or 0)

    def _wait_until_ready(self, address: str) -> str | None:
        """Wait until the broker serves clients; return None, or why it does not serve them in time."""
        deadline = time.monotonic() + self._start_timeout.total_seconds()
        # Wait for the log line first: a client that cannot connect waits longer and longer.
        while READY not in self._log():
            if not self.running:
                return "ended while it was starting"
            if time.monotonic() > deadline:
                return f"was not ready within {self._start_timeout}"
            time.sleep(_POLL.total_seconds())
        admin = _admin(address)
        while self.running and time.monotonic() <= deadline:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=1).brokers:
                    return None
        return f"did not answer within {self._start_timeout}"

    def _log(self) -> str:
        """Return the output of the broker since its last start."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_offset)
            return file.read().decode(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if self.running and self._guard is not None and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, how)
                os.kill(self._pid, signal.SIGCONT)  # a paused process does not handle SIGTERM
            try:
                self._guard.wait(_STOP_TIMEOUT.total_seconds())
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        if self._guard is not None:
            self._guard.wait()
            for pipe in (self._guard.stdin, self._guard.stdout):
                if pipe is not None:
                    pipe.close()
        self._guard = None

    def _stop_at_exit(self, owner: int) -> None:
        if os.getpid() == owner:  # forked children do not own the broker
            self.stop()

    def _require_running(self) -> None:
        if not self.running:
            raise PlatformError("the embedded Kafka is not running; call start first")


def _last_lines(log: str) -> str:
    lines = "\n".join(f"  | {line}" for line in log.splitlines()[-_LINES_SHOWN:])
    return f"the broker last printed\n{lines}"


def _free_port(but: int = 0) -> int:
    ports = [port for port in random.SystemRandom().sample(_PORTS, 200) if port != but]
    for port in ports:
        if _is_free(port):
            return port
    raise PlatformError(
        f"{BROKER_HOST} has no free port between {_PORTS.start} and {_PORTS.stop}, which the broker needs"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Java does: closing connections of a former broker do not occupy the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((BROKER_HOST, port))
        except OSError:
            return False
        return True


def _admin(address: str) -> AdminClient:
    # By default, the client writes warnings to standard error while the broker is down.
    silent = logging.getLogger(f"{__name__}.admin")
    silent.disabled = True
    return AdminClient({"bootstrap.servers": address}, logger=silent)
