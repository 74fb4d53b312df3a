# SPDX-License-Identifier: Apache-2.0
"""One application whose functions are written in five languages, and crash."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import pytest
from command_trees import Expected, trees
from harness import KafkaHarness, wait
from languages import commanded
from languages.application import COROUTINE, PLAIN
from languages.servers import LANGUAGES, Server
from local_servers import ServedProgram

pytestmark = [pytest.mark.spark, pytest.mark.broker]

TESTS = Path(__file__).resolve().parents[1]
COMMANDS = int(os.environ.get("STATEFUN_COMMANDS", "3000"))
IDS = [f"Grüße/{number}" for number in range(50)]
PARTITIONS = 2
SERVED = "statefun serve"


@contextmanager
def all_served(results: str, folder: Path) -> Iterator[dict[str, Server | ServedProgram]]:
    """Serve a function in each language; yield the servers by the functions they have."""
    with ExitStack() as stack:
        servers: dict[str, Server | ServedProgram] = {
            f"{commanded.NAMESPACE}/{language.name}": stack.enter_context(Server(language, results))
            for language in LANGUAGES
            if not language.missing_tools
        }
        own = ServedProgram(
            Path(commanded.__file__),
            folder / "served.log",
            environment={"RESULTS_TOPIC": results, "PYTHONPATH": str(TESTS.parent)},
        )
        stack.callback(own.kill)
        own.start()
        yield servers | {f"{commanded.NAMESPACE}/*": own}


def module_of(
    kafka: KafkaHarness, topics: Mapping[str, str], servers: Mapping[str, Server | ServedProgram]
) -> str:
    """Return the module file of the application."""
    routes = "".join(
        f"    - {{topic: '{topic}', valueType: {commanded.COMMANDS.typename}, "
        f"targets: [{function}]}}\n"
        for function, topic in topics.items()
    )
    endpoints = "".join(
        f"""---
kind: io.statefun.endpoints.v2/http
spec:
  functions: {functions}
  urlPathTemplate: {server.url}{{function.name}}
  maxNumBatchRequests: 100
"""
        for functions, server in servers.items()
    )
    return f"""\
kind: io.statefun.kafka.v1/ingress
spec:
  id: {commanded.NAMESPACE}/in
  address: {kafka.address}
  consumerGroupId: languages
  startupPosition: {{type: earliest}}
  topics:
{routes}---
kind: io.statefun.kafka.v1/egress
spec:
  id: {commanded.OUT}
  address: {kafka.address}
  deliverySemantic: {{type: exactly-once, transactionTimeout: 1min}}
{endpoints}"""


@attrs.define
class Driver:
    """The application, launched by spark-submit."""

    folder: Path
    results: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Launch it."""
        bin_ = Path(sys.executable).parent
        environment = {
            **os.environ,
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
            "RESULTS_TOPIC": self.results,
        }
        environment.pop("PYSPARK_SUBMIT_ARGS", None)
        conf = {
            "module": self.folder / "module.yaml",
            "checkpoint": self.folder / "checkpoint",
            # Small enough for several micro-batches, so that there is something to crash.
            "records-per-batch": max(100, COMMANDS // 20),
        }
        options = [f"spark.statefun.{name}={value}" for name, value in conf.items()]
        command = [
            *("spark-submit", "--master", "local[2]", "--driver-memory", "1g"),
            *(word for option in options for word in ("--conf", option)),
            str(TESTS / "languages" / "application.py"),
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def is_running(self) -> bool:
        """Return whether it runs."""
        return self.process is not None and self.process.poll() is None

    def end(self, number: signal.Signals) -> None:
        """End it by a signal."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()

    def said(self) -> str:
        """Return its log."""
        return (self.folder / "log").read_text(errors="replace")


@contextmanager
def disturbed(servers: Mapping[str, Server | ServedProgram], seed: int) -> Iterator[list[str]]:
    """Kill a server now and then, and start it again; yield which were killed."""
    chosen, killed, done = random.Random(seed), list[str](), threading.Event()

    def disturb() -> None:
        while not done.wait(chosen.uniform(0.2, 1.5)):
            name = chosen.choice([*servers])
            servers[name].kill()
            killed.append(name)
            done.wait(chosen.uniform(0, 1))
            servers[name].start()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


@pytest.mark.long(minutes=4)
def test_five_languages_come_to_exact_totals(kafka: KafkaHarness, tmp_path: Path) -> None:
    """Endpoints are killed all the time, and the driver twice; each command is carried out once."""
    results = kafka.topic("results", PARTITIONS)
    with all_served(results, tmp_path) as servers:
        functions = [
            *(name for name in servers if not name.endswith("/*")),
            *(commanded.PLAIN, commanded.COROUTINE, PLAIN, COROUTINE),
        ]
        forest = trees(COMMANDS, COMMANDS, functions, IDS)
        expected = Expected.of(forest)
        topics = {
            function: kafka.topic(function.replace("/", "."), PARTITIONS) for function in functions
        }
        for function, topic in topics.items():
            kafka.send(
                topic, [(tree.id, tree.value) for tree in forest if tree.function == function]
            )
        (tmp_path / "module.yaml").write_text(module_of(kafka, topics, servers))
        driver = Driver(tmp_path, results)
        try:
            with disturbed(servers, COMMANDS) as killed:
                for share in (10, 3):
                    driver.start()
                    wait_for(kafka, results, len(expected) // share, driver)
                    driver.end(signal.SIGKILL)
                driver.start()
                wait_for(kafka, results, len(expected), driver)
            assert killed
            time.sleep(1)  # something may come twice, or come that was cancelled
            driver.end(signal.SIGTERM)
        finally:
            driver.end(signal.SIGKILL)
        expected.check(record.value for record in kafka.receive(results))


_PATIENCE = 4
"""So often it is waited for the next record: servers of five languages begin slowly on a busy machine."""


def wait_for(kafka: KafkaHarness, results: str, count: int, driver: Driver) -> None:
    """Wait for so many records, as long as the application runs and more come."""
    while (found := len(kafka.receive(results))) < count:

        def goes_on(before: int = found) -> bool:
            assert driver.is_running(), driver.said()[-5000:]
            return len(kafka.receive(results)) > before

        for _ in range(_PATIENCE):
            with suppress(AssertionError):
                wait(goes_on)
                break
            assert driver.is_running(), driver.said()[-5000:]
        else:
            return  # what has not come is told in the end
