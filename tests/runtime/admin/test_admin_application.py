# SPDX-License-Identifier: Apache-2.0
"""The admin API of a running application, called by a client that its own OpenAPI document describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs
import pytest
from harness import KafkaHarness, running, wait
from jsonschema import Draft202012Validator
from local_servers import free_port
from patience import SECONDS
from prometheus_client.parser import text_string_to_metric_families

from statefun import Address, Context, KafkaEgressMessage, Retry, State, StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Visits(State):
    """The state of a greeter."""

    count: int = 0


def functions(topic: str, has_failed: Path) -> StatefulFunctions:
    """Return a function that passes greetings on to another one, which fails at first for Bob."""
    registry = StatefulFunctions()

    @registry.bind("test/greeter")
    def greet(ctx: Context, name: str, state: Visits) -> None:
        state.count += 1
        ctx.send(Address("test/printer", ctx.address.id), f"Hello {name}")
        if name == "later":
            ctx.send_after(timedelta(days=1), ctx.address, "again")

    @registry.bind("test/printer", on_failure=Retry(attempts=3, backoff=timedelta(milliseconds=1)))
    def show(ctx: Context, text: str) -> None:
        if text == "Hello Bob" and not has_failed.exists():
            has_failed.touch()
            raise ValueError("not Bob")
        record = KafkaEgressMessage.for_egress("test/out").with_topic(topic)
        ctx.send(record.with_key(ctx.address.id).with_value(text).build())

    return registry


@attrs.define
class Client:
    """Calls operations as an OpenAPI document describes them, and checks each answer against its schema."""

    port: int
    document: Any = None

    def request(self, method: str, path: str, body: bytes | None, type_: str) -> tuple[int, str]:
        """Send a request; return the status and the content of the answer."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as client:
            client.request(method, path, body, {"Content-Type": type_})
            answer = client.getresponse()
            return answer.status, answer.read().decode()

    def call(self, name: str, body: bytes | None = None, /, **parameters: str) -> Any:
        """Call an operation; return the content of the answer."""
        ((path, method, operation),) = [
            (path, method, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if operation["operationId"] == name
        ]
        for each in operation["parameters"]:
            if each["in"] == "path":
                path = path.replace(f"{{{each['name']}}}", quote(parameters[each["name"]], safe=""))
        type_ = next(iter(operation.get("requestBody", {}).get("content", {"": None})))
        status, text = self.request(method.upper(), path, body, type_)
        (kind, described), *_ = operation["responses"][str(status)]["content"].items()
        if kind != "application/json":
            return text
        schema = {**described["schema"], "components": self.document["components"]}
        content = json.loads(text)
        Draft202012Validator(schema).validate(content)
        return content


@attrs.frozen
class Running:
    """A running application, and a client of its admin API."""

    application: Application
    client: Client
    kafka: KafkaHarness
    names: str
    greetings: str

    def seen(self) -> list[str]:
        """Return the published greetings."""
        return [record.value for record in self.kafka.receive(self.greetings)]


@contextmanager
def begun(kafka: KafkaHarness, folder: Path) -> Iterator[Running]:
    """Run an application with an admin API."""
    names, greetings = kafka.topic("names"), kafka.topic("greetings")
    module = kafka.module({names: ["test/greeter"]}, semantic="exactly-once").replace(
        "valueType: io.statefun.types/string", "valueFormat: {type: text}"
    )
    (folder / "module.yaml").write_text(module)
    client = Client(free_port())
    settings = Settings.resolve(
        {},
        None,
        admin=client.port,
        checkpoint=folder / "checkpoint",
        module=folder / "module.yaml",
        on_unregistered="skip",
    )
    application = Application(
        parse_module(module), functions(greetings, folder / "failed"), settings
    )
    with running(application):

        def is_up() -> bool:
            try:
                return client.request("GET", "/health/ready", None, "")[0] == 200
            except OSError:
                return False

        wait(is_up)
        client.document = json.loads(client.request("GET", "/openapi.json", None, "")[1])
        yield Running(application, client, kafka, names, greetings)


@pytest.fixture(scope="module")
def app(broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one application for all tests of the module."""
    with begun(KafkaHarness(broker, "admin"), tmp_path_factory.mktemp("admin")) as found:
        yield found


def metrics(app: Running) -> dict[tuple[str, ...], float]:
    """Return the values of the application's metrics, by name and labels."""
    text = app.client.call("metrics")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_flows_is_shown(app: Running) -> None:
    """Records read, messages between functions, failures, records published: in JSON, and as metrics."""
    app.kafka.send(app.names, [("a", "Ada"), ("e", "Eve"), ("b", "later")])
    wait(lambda: len(app.seen()) == 3)
    wait(lambda: app.client.call("egress", namespace="test", name="out")["records"] == 3)
    wait(lambda: app.client.call("ingress", namespace="test", name="in")["records"] == 3)
    wait(lambda: app.client.call("status")["counts"]["records_published"] == 3)

    greeter = app.client.call("function", namespace="test", name="greeter")
    assert greeter["invocations"] == 3
    assert greeter["messages"] == {"test/printer": 3, "test/greeter": 1}
    edges = {
        (each["origin"]["name"], each["target"]["name"]): each["count"]
        for each in app.client.call("topology")["edges"]
    }
    assert edges == {
        ("test/in", "test/greeter"): 3,
        ("test/greeter", "test/printer"): 3,
        ("test/greeter", "test/greeter"): 1,
        ("test/printer", "test/out"): 3,
    }
    values = metrics(app)
    consumed = "messaging_client_consumed_messages_total"
    assert values[consumed, "kafka", "test/in", app.names, "0", "tests"] == 3
    assert values["messaging_client_sent_messages_total", "test/out"] == 3
    assert values["messaging_process_duration_seconds_count", "test/printer"] == 3
    assert values["statefun_last_commit_age_seconds",] >= 0
    assert values["jvm_memory_used_bytes", "heap"] > 0
    status = app.client.call("status")
    assert (status["state"], status["lag"]) == ("RUNNING", 0)
    assert status["counts"]["records_published"] == 3
    assert app.client.call("batches")[-1]["phases"]["addBatch"] > 0
    wait(lambda: app.client.call("timers")["buckets"] > 0)


def test_a_failure_is_shown(app: Running) -> None:
    """By its kind, by its code, and as a retry."""
    app.kafka.send(app.names, [("o", "Bob")])
    wait(lambda: "Hello Bob" in app.seen())
    wait(lambda: bool(app.client.call("failures")))
    ((failure),) = app.client.call("failures")
    assert (failure["count"], failure["what"]) == (1, "to be tried again")
    assert "not Bob" in failure["text"]
    values = metrics(app)
    assert values["statefun_function_failures_total", "test/printer", "SF301"] == 1
    assert values["statefun_function_retries_total", "test/printer"] == 1


def test_a_message_is_sent_and_its_state_shown(app: Running) -> None:
    """The state is that of a committed micro-batch, with typed values."""
    place = {"namespace": "test", "name": "greeter", "id": "z/1"}
    assert app.client.call("send", b"Zoe", **place) == {"address": "test/greeter/z/1"}
    wait(lambda: "Hello Zoe" in app.seen())

    state = app.client.call("state", **place)
    assert state["values"]["count"]["value"] == 1
    assert app.client.call("state", **{**place, "id": "nobody"})["error_code"] == 404


def test_a_paused_egress_waits_and_goes_on(app: Running) -> None:
    """The lag of the egress shows what waits; a restart in between changes nothing, and all records count once."""
    place = {"namespace": "test", "name": "out"}
    assert app.client.call("pause_egress", **place)["has_changed"]
    assert not app.client.call("pause_egress", **place)["has_changed"]
    before = len(app.seen())
    app.kafka.send(app.names, [("p", "Pam")])
    wait(lambda: app.client.call("egress", **place)["waiting_records"] == 1)
    restarts = app.client.call("status")["restarts"]
    assert app.client.call("restart") == {"done": "restart"}
    wait(lambda: app.client.call("status")["restarts"] > restarts)
    wait(lambda: app.client.call("status")["state"] == "RUNNING")
    assert app.client.call("egress", **place)["state"] == "PAUSED"
    assert len(app.seen()) == before
    assert app.client.call("resume_egress", **place)["has_changed"]
    wait(lambda: len(app.seen()) == before + 1)
    wait(lambda: app.client.call("egress", **place)["waiting_records"] == 0)
    wait(lambda: app.client.call("egress", **place)["records"] == len(app.seen()))
    assert app.client.call("function", namespace="test", name="greeter")["invocations"] > 3


def test_every_operation_answers_as_the_document_says(app: Running) -> None:
    """Each of those that need no name and change nothing."""
    for path, methods in app.client.document["paths"].items():
        if "get" in methods and "{" not in path:
            assert app.client.call(methods["get"]["operationId"]) is not None
