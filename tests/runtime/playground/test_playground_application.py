# SPDX-License-Identifier: Apache-2.0
"""Applications without Kafka: messages and records go over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from harness import wait
from languages.servers import PYTHON, Server
from local_servers import connected, free_port
from patience import SECONDS
from published_package import PROGRAMS, published_python
from submitting import EXAMPLES

from statefun import (
    Context,
    IntType,
    Message,
    StatefulFunctions,
    ValueSpec,
    egress_message_builder,
    kafka_egress_message,
    make_json_type,
)
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.takes(minutes=0.6)]

DOCUMENTS = Path(__file__).resolve().parents[2] / "module" / "documents"
RECORD = make_json_type("io.statefun.playground/EgressRecord")


class Client:
    """Talks to a playground whose ingress and egress have a port each."""

    def __init__(self) -> None:
        self.ports = free_port(), free_port()

    def module(self, egress: str = "io.statefun.playground/egress") -> str:
        """Return the module file."""
        return f"""
kind: io.statefun.playground.v1/ingress
spec:
  port: {self.ports[0]}
---
kind: io.statefun.playground.v1/egress
spec:
  port: {self.ports[1]}
  id: {egress}
  topics:
    - results
    - others
"""

    def put(self, path: str, value: bytes, typename: str = "") -> int:
        """Send a message; return the status of the answer."""
        headers = {"Content-Type": f"application/vnd.{typename}"} if typename else {}
        with closing(HTTPConnection("127.0.0.1", self.ports[0], timeout=SECONDS)) as client:
            client.request("PUT", path, value, headers)
            return client.getresponse().status

    def get(self, topic: str = "results", seconds: int = 60) -> str | None:
        """Take a record; None if there is none."""
        with closing(HTTPConnection("127.0.0.1", self.ports[1], timeout=SECONDS)) as client:
            client.request("GET", f"/{topic}?wait={seconds}")
            answer = client.getresponse()
            return answer.read().decode() if answer.status == 200 else None

    def is_up(self) -> bool:
        """Return whether both answer."""
        try:
            return self.get("none") is None and self.put("/", b"") == 404
        except (OSError, HTTPException):
            return False


@contextmanager
def running(module: str, functions: StatefulFunctions, folder: Path) -> Iterator[None]:
    """Run an application in a thread until the block ends."""
    settings = Settings.resolve({}, None, checkpoint=folder / "checkpoint")
    application = Application(parse_module(module), functions, settings)

    def run() -> None:
        with suppress(KeyboardInterrupt):
            application.run()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        application.stop()
        thread.join()


def test_messages_come_and_records_go_over_http(tmp_path: Path) -> None:
    """State lives on; a value of the upstream playground is a record, and so is Kafka's."""
    functions = StatefulFunctions()

    @functions.bind("play.fns/counter", [ValueSpec("count", IntType)])
    def count(ctx: Context, message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        assert ctx.caller is None
        assert ctx.record is None
        text = f"{message.as_string()} {ctx.storage.count}"
        record = {"topic": "results", "payload": text}
        egress = "io.statefun.playground/egress"
        ctx.send_egress(egress_message_builder(egress, record, RECORD))
        ctx.send_egress(kafka_egress_message(egress, topic="others", key="k", value=text))

    client = Client()
    for turn in range(2):
        with running(client.module(), functions, tmp_path):
            wait(client.is_up)
            for number in range(20):
                assert client.put("/play.fns/counter/Ada", b"hello %d" % number) == 200
            texts = [client.get() for _ in range(20)]
            assert texts == [f"hello {n} {turn * 20 + n + 1}" for n in range(20)]
            assert [client.get("others") for _ in range(20)] == texts
            assert client.get(seconds=0) is None


def test_the_greeter_of_the_upstream_playground_runs(tmp_path: Path) -> None:
    """Its module file, with other ports, and its function by the published package."""
    client, port = Client(), free_port()
    module = (DOCUMENTS / "playground.yaml").read_text()
    for there, here in (
        ("host.docker.internal:1108", f"127.0.0.1:{port}"),
        ("8090", str(client.ports[0])),
        ("8091", str(client.ports[1])),
    ):
        assert there in module
        module = module.replace(there, here)
    command = [*published_python(), str(PROGRAMS / "playground.py"), str(port)]
    with subprocess.Popen(command, text=True) as served:
        try:
            connected(port, served).close()
            with running(module, StatefulFunctions(), tmp_path):
                wait(client.is_up)
                for name in ("Ada", "Ada", "Bob"):
                    body = json.dumps({"name": name}).encode()
                    assert (
                        client.put(f"/example/person/{name}", body, "example/GreetRequest") == 200
                    )
                greetings = [client.get("greetings") for _ in range(3)]
        finally:
            served.kill()
    assert sorted(map(str, greetings)) == [
        "Welcome Ada, for the 1. time",
        "Welcome Ada, for the 2. time",
        "Welcome Bob, for the 1. time",
    ]


def test_functions_of_another_language_need_no_kafka(tmp_path: Path) -> None:
    """An application may consist of a module file alone: the playground and an endpoint."""
    client = Client()
    with Server(PYTHON) as server:
        module = f"""{client.module("com.example.languages/out")}---
kind: io.statefun.endpoints.v2/http
spec:
  functions: com.example.languages/*
  urlPathTemplate: {server.url}/{{function.name}}
"""
        commands = [
            {"do": "add", "by": 3, "name": "first"},
            {"do": "send", "to": PYTHON.typename, "id": "Bob", "commands": [
                {"do": "add", "by": 4, "name": "second"}
            ]},
        ]  # fmt: skip
        with running(module, StatefulFunctions(), tmp_path):
            wait(client.is_up)
            path = f"/{PYTHON.typename}/Ada"
            typename = "com.example.languages/commands"
            assert client.put(path, json.dumps(commands).encode(), typename) == 200
            found = [json.loads(client.get() or "") for _ in range(2)]
    assert [(each["name"], each["total"]) for each in found] == [("first", 3), ("second", 4)]


@pytest.mark.long(minutes=2.1)
def test_a_crash_loses_no_accepted_message(tmp_path: Path) -> None:
    """A driver that is killed again and again counts each accepted message once."""
    client = Client()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PLAYGROUND_PORT": str(client.ports[0]),
        "PLAYGROUND_EGRESS_PORT": str(client.ports[1]),
    }
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    command = [
        *("spark-submit", "--conf", f"spark.statefun.checkpoint={tmp_path / 'checkpoint'}"),
        *("--conf", f"spark.statefun.module={EXAMPLES / 'greeter' / 'playground.yaml'}"),
        str(EXAMPLES / "greeter" / "app.py"),
    ]
    accepted: Counter[str] = Counter()

    @contextmanager
    def submitted() -> Iterator[subprocess.Popen[bytes]]:
        with (tmp_path / "log").open("a") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def greet(process: subprocess.Popen[bytes], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with suppress(OSError, HTTPException):  # in the middle of a request
            while time.monotonic() < deadline:
                for name in ("Ada", "Bob", "Eve"):
                    body = json.dumps({"name": name}).encode()
                    status = client.put(
                        f"/com.example.fns/greeter/{name}", body, "com.example/User"
                    )
                    if status == HTTPStatus.SERVICE_UNAVAILABLE:  # it is about to end
                        return
                    assert status == HTTPStatus.OK
                    accepted[name] += 1

    for seconds in (0.1, 1.5, 3.0):
        with submitted() as process:
            wait(client.is_up)
            killer = threading.Timer(seconds, lambda: os.kill(process.pid, signal.SIGKILL))
            killer.start()
            greet(process, seconds + 1)
            killer.join()
            process.wait()
            wait(lambda: not client.is_up())  # spark-submit's own process ends a little later
    with submitted() as process:
        wait(client.is_up)
        greet(process, 0.1)
        greetings: list[str] = []
        while greeting := client.get("greetings", 60 if len(greetings) < accepted.total() else 2):
            greetings.append(greeting)
        process.send_signal(signal.SIGTERM)
        process.wait()
    for name in ("Ada", "Bob", "Eve"):
        visits = [int(text.split()[-1]) for text in greetings if f" {name}," in text]
        # A request whose answer was lost may have been accepted, too.
        assert visits == [*range(1, len(visits) + 1)]
        assert 0 <= len(visits) - accepted[name] <= 3
    assert min(accepted.values()) > 10
