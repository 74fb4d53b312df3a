# SPDX-License-Identifier: Apache-2.0
"""``statefun dev run``: runs an application on this machine, and starts it again when its files change."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from statefun.dev.changed_files import ChangedFiles
from statefun.dev.dev_topics import cluster_topics, new_topic
from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.progress import ProgressLine
from statefun.dev.record_feed import RecordFeed
from statefun.module.loader import load_module_files
from statefun.projects.program_arguments import check_program
from statefun.projects.run_command import environment
from statefun.runtime.http_server import ListenAddress
from statefun.runtime.spark.jars import java_command
from statefun.runtime.spark_internals.warm_spark import WarmSpark
from statefun.sdk.errors import ConfigurationError, StatefunError

_LOOK = timedelta(milliseconds=300)
_SETTLED = timedelta(milliseconds=200)
"""How long files must stay as they are before the application is started again."""
_STOP = timedelta(seconds=20)
"""How long an application may take to stop."""
_ADMIN = "spark.statefun.admin"
_MODULE = "spark.statefun.module"
_ADDRESS = "KAFKA_ADDRESS"


def run_action(options: argparse.Namespace) -> None:
    """Run an application until Ctrl-C or SIGTERM, with a broker if none runs, and follow changes of its files.

    Args:
        options: the parsed options of the command line.

    Raises:
        ConfigurationError: if there is no such program, or an option has a wrong value.
        StatefunError: if the broker or Spark's JVM cannot be started.
    """
    program: Path = options.program
    check_program(program)
    is_to_open = sys.stdout.isatty() if options.open is None else options.open
    page = _page_of(options) if is_to_open else None
    java_command()  # fails with the command that installs Java
    # SIGTERM raises an exception, as Ctrl-C does, so that all processes end before the command.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    is_own = _ADDRESS not in os.environ
    with (
        _broker(options) as address,
        RecordFeed(address, _say, all_topics=is_own) as feed,
    ):
        os.environ[_ADDRESS] = address
        # Otherwise Spark would warn of the name of the machine.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        spark = WarmSpark(_spark_arguments(options), environment())
        try:
            application = _Application(
                program, options.conf, address if is_own else None, spark, feed
            )
            _follow(application, page)
        finally:
            spark.close()


class _Application:
    """The application that is developed, and the process that runs it.

    Args:
        program: its program.
        settings: settings as ``KEY=VALUE``.
        address: host and port of the broker in which missing topics are created; None to create none.
        spark: the JVM that the program uses.
        feed: prints records; it gets the names of the topics that are read.
    """

    def __init__(
        self,
        program: Path,
        settings: list[str],
        address: str | None,
        spark: WarmSpark,
        feed: RecordFeed,
    ) -> None:
        self.folder = program.resolve().parent
        self._program = program.resolve()
        given = dict(setting.partition("=")[::2] for setting in settings)
        names = given.get(_MODULE, str(self.folder / "module.yaml")).split(",")
        self._modules = [Path(name.strip()) for name in names]
        self._address = address
        self._spark = spark
        self._feed = feed
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Create the topics that are missing, and start the program; print the reason if the module has problems."""
        try:
            self._create_topics()
        except StatefunError as error:
            _say(f"{error}\nwaiting for a change of the files")
            return
        self._process = subprocess.Popen(
            [sys.executable, str(self._program)],
            env={**environment(), **self._spark.variables()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Stop the program if it runs; the state stays in the checkpoint."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP.total_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
        self._clear(process)

    def look(self) -> None:
        """Print the exit code if the program has ended by itself."""
        process = self._process
        if process is not None and process.poll() is not None:
            _say(
                f"the program has ended with exit code {process.returncode}; waiting for a change of the files"
            )
            self._clear(process)

    def _clear(self, process: subprocess.Popen[bytes]) -> None:
        """Clear what an ended program has left in the JVM."""
        self._process = None
        if process.wait() < 0:  # killed: its locks on the checkpoint are still held in the JVM
            self._spark.close()
        else:
            self._spark.end_session()

    def _create_topics(self) -> None:
        """Set which topics the feed shows as inputs of ingresses; create missing topics of ingresses and of dead letters."""
        paths = [path for path in self._modules if path.exists()]
        if not paths:
            return
        module = load_module_files(paths)
        self._feed.inputs = {route.topic for each in module.ingresses for route in each.topics}
        if self._address is None:
            return
        letters = {each.dead_letter_topic for each in module.egresses if each.dead_letter_topic}
        present = cluster_topics(self._address).topics
        for topic in sorted({*self._feed.inputs, *letters} - present.keys()):
            new_topic(self._address, topic, 1)
            _say(f"created topic {topic}")


class _Page:
    """The live page of the application: it is opened in the browser once, as soon as the application serves it."""

    def __init__(self, place: ListenAddress) -> None:
        self._place = place
        self._is_opened = False

    def look(self) -> None:
        """Open the page if the application serves it now."""
        if not self._is_opened and _is_listening(self._place.host, self._place.port):
            self._is_opened = True
            webbrowser.open(self._place.url)


def _page_of(options: argparse.Namespace) -> _Page:
    try:
        return _Page(ListenAddress.parse(options.admin))
    except ValueError as error:
        raise ConfigurationError(f"--admin {options.admin}: {error}") from error


def _follow(application: _Application, page: _Page | None) -> None:
    """Start the application, and start it again after each change of its files, until Ctrl-C.

    Args:
        application: the application.
        page: the page to open; None to open none.
    """
    changes = ChangedFiles(application.folder)
    try:
        application.start()
        while True:
            time.sleep(_LOOK.total_seconds())
            application.look()
            if page is not None:
                page.look()
            changed = set(changes.take())
            if not changed:
                continue
            time.sleep(_SETTLED.total_seconds())
            while new := changes.take():  # an editor writes several files, or one in parts
                changed.update(new)
                time.sleep(_SETTLED.total_seconds())
            names = ", ".join(str(path.relative_to(application.folder)) for path in sorted(changed))
            _say(f"changed: {names}; starting again")
            application.stop()
            application.start()
    finally:
        application.stop()


@contextmanager
def _broker(options: argparse.Namespace) -> Iterator[str]:
    """Yield the address of a broker: ``KAFKA_ADDRESS``, one at ``--port``, or a new one that ends with the block."""
    given = os.environ.get(_ADDRESS)
    address = given or f"localhost:{options.port}"
    if given or _is_listening("localhost", options.port):
        cluster_topics(address)  # fails with one sentence if no broker answers
        _say(f"Kafka is at {address}")
        yield address
        return
    with ProgressLine("Starting Kafka") as progress:
        kafka = EmbeddedKafka(
            port=options.port,
            data=options.data,
            config={"auto.create.topics.enable": "true"},
            progress=progress.update,
        ).start()
    with kafka:
        _say(f"Kafka is at {address}, and keeps its records in {options.data}")
        yield address


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _spark_arguments(options: argparse.Namespace) -> list[str]:
    """Return the options of ``spark-submit``: the master, and all settings."""
    settings = options.conf
    if not any(each.startswith(f"{_ADMIN}=") for each in settings):
        settings = [*settings, f"{_ADMIN}={options.admin}"]
    words = [word for setting in settings for word in ("--conf", setting)]
    return ["--master", options.master, *words]


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command
