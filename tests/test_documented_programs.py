# SPDX-License-Identifier: Apache-2.0
"""Programs in the pages do what the pages say, with Kafka and Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from documentation import block, blocks
from harness import KafkaHarness, run

import statefun
from statefun import (
    Context,
    FunctionError,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    StringType,
    message_builder,
)
from statefun.dev.spark_application import FileClock
from statefun.module.loader import load_module_files, parse_module
from statefun.module.model import FromDate
from statefun.module.topic_routes import AvroValues
from statefun.sdk.encoding import typed
from statefun.sdk.functions import default_functions

pytestmark = pytest.mark.takes(minutes=1.2)


@pytest.mark.broker
@pytest.mark.spark
def test_the_function_runs_with_the_module_file(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The function and module.yaml greet; a failure reads as the pages show it."""
    users, greetings = kafka.topic("users"), kafka.topic("greetings")
    names: dict[str, Any] = {}
    program = block("README.md", "python", "com.example.docs/greeter")
    exec(program.replace('.with_topic("greetings")', f".with_topic({greetings!r})"), names)
    original = default_functions.for_typename("com.example.docs/greeter")
    functions = StatefulFunctions()

    @functions.bind("com.example.docs/greeter", specs=list(original.specs.values()))
    def greet(ctx: Context, message: Message) -> None:
        if message.as_string() == "nobody":
            raise ValueError("no such user")
        original.call(ctx, message)

    module = (
        block("README.md", "yaml", "com.example.docs/users")
        .replace("${KAFKA_ADDRESS:-localhost:9092}", kafka.address)
        .replace("topic: users", f"topic: {users}")
    )
    kafka.send(users, [(name, name) for name in ("Ada", "Alan", "Ada")])

    run(module, functions, checkpoint)
    kafka.send(users, [("Ada", "nobody")])
    with pytest.raises(FunctionError) as caught:
        run(module, functions, checkpoint)

    assert sorted(record.value for record in kafka.receive(greetings)) == [
        "Hello Ada, visit 1",
        "Hello Ada, visit 2",
        "Hello Alan, visit 1",
    ]
    shown = (
        block("docs/failures.md", "text", "SF301")
        .replace("\n", " ")
        .replace("offset 7", "offset 3")
        .strip()
    )
    assert f"statefun: {caught.value}".replace(users, "users") == shown


@pytest.mark.broker
@pytest.mark.spark
def test_the_doorbell_sends_messages(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Each guest's greeter gets a message from the doorbell, in Kafka's record's order."""
    rings, greetings = kafka.topic("rings"), kafka.topic("greetings")
    names: dict[str, Any] = {"Context": Context, "Message": Message}
    functions = StatefulFunctions()
    names["function"] = functions.bind
    exec(block("docs/functions.md", "python", "docs/doorbell"), names)

    @functions.bind("com.example.docs/greeter")
    def greet(ctx: Context, message: Message) -> None:
        text = f"{ctx.caller} {message.as_string()}"
        ctx.send(KafkaEgressMessage("test/out", topic=greetings, value=text, key=ctx.address.id))

    guests = typed("Ada, Alan, Ada", StringType).value
    kafka.send(rings, [("front", guests)])
    run(kafka.module({rings: ["com.example.docs/doorbell"]}), functions, checkpoint)

    assert sorted((record.key, record.value) for record in kafka.receive(greetings)) == [
        ("Ada", "com.example.docs/doorbell/front at the door"),
        ("Ada", "com.example.docs/doorbell/front at the door"),
        ("Alan", "com.example.docs/doorbell/front at the door"),
    ]


@pytest.mark.broker
@pytest.mark.spark
def test_the_cart_reminds_unless_it_is_paid(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """After an hour, or an hour after the last change, by a clock that the test sets; who has paid is left alone."""
    carts, greetings = kafka.topic("carts"), kafka.topic("greetings")
    functions = StatefulFunctions()
    names: dict[str, Any] = {
        "Context": Context,
        "Message": Message,
        "message_builder": message_builder,
        "function": functions.bind,
    }
    exec(block("docs/functions.md", "python", "docs/cart"), names)

    @functions.bind("com.example.docs/greeter")
    def greet(ctx: Context, message: Message) -> None:
        text = message.as_string()
        ctx.send(KafkaEgressMessage("test/out", topic=greetings, value=text, key=ctx.address.id))

    module = kafka.module({carts: ["com.example.docs/cart"]})
    clock = FileClock(tmp_path / "clock")
    received = []
    for minutes, events in (
        (0, [("Ada", "filled"), ("Alan", "filled"), ("Grace", "filled")]),
        (30, [("Grace", "filled again")]),
        (59, [("Alan", "paid")]),
        (60, []),
        (180, []),
    ):
        clock.set(60 * minutes)
        kafka.send(carts, ((key, typed(value, StringType).value) for key, value in events))
        run(module, functions, checkpoint, clock=clock)
        received.append([(record.key, record.value) for record in kafka.receive(greetings)])

    ada, grace = ("Ada", "still?"), ("Grace", "still?")
    assert received == [[], [], [], [ada], [ada, grace]]


def test_the_types_do_what_is_asserted() -> None:
    """The block's own assertions hold."""
    exec(block("docs/functions.md", "python", "docs/User"), {})


@pytest.mark.broker
@pytest.mark.spark
def test_records_are_forwarded(kafka: KafkaHarness, checkpoint: Path) -> None:
    """With a header and the time that they had; one of them becomes a tombstone."""
    users, greetings = kafka.topic("users"), kafka.topic("greetings")
    functions = StatefulFunctions()

    def send(typename: str, **parts: Any) -> KafkaEgressMessage:
        assert typename == "com.example/greets"
        return KafkaEgressMessage("test/out", **{**parts, "topic": greetings})

    names: dict[str, Any] = {
        "Context": Context,
        "Message": Message,
        "KafkaEgressMessage": send,
        "function": functions.bind,
    }
    exec(block("docs/functions.md", "python", "docs/forward"), names)
    kafka.send(users, [("Ada", "x"), ("Alan", "forget me")])
    run(kafka.module({users: ["com.example.docs/forward"]}), functions, checkpoint)

    received = {record.key: record for record in kafka.receive(greetings)}
    assert {key: record.value for key, record in received.items()} == {"Ada": "x", "Alan": ""}
    assert received["Ada"].headers == {"origin": "forward"}


def test_the_keys_of_topics_and_of_ends_are_known(tmp_path: Path) -> None:
    """The blocks fit into an ingress."""
    (tmp_path / "user.avsc").write_text('{"type": "string"}')
    head = "kind: io.statefun.kafka.v1/ingress\nspec:\n  id: a/b\n  address: kafka:9092\n"
    parts = [block("docs/kafka.md", "yaml", part) for part in ("keyType", "stopPosition")]
    text = head + "  consumerGroupId: c\n" + textwrap.indent("".join(parts), "  ")
    [ingress] = parse_module(text, str(tmp_path / "module.yaml")).ingresses
    assert ingress.topics[0].value_format == AvroValues('{"type": "string"}')
    assert ingress.stop_position == FromDate(datetime(2026, 2, 1, tzinfo=timezone.utc))


@pytest.mark.broker
@pytest.mark.spark
def test_the_components_run(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record becomes a user, and a user a record; a tombstone is left out."""
    names, users = kafka.topic("names"), kafka.topic("users")
    functions = StatefulFunctions()
    given: dict[str, Any] = {}
    monkeypatch.setattr(statefun, "run", given.update, raising=False)
    monkeypatch.setattr(statefun, "function", functions.bind)
    text = block("docs/kafka.md", "python", "components").replace("localhost:9092", kafka.address)
    text = text.replace('"names"', repr(names)).replace('"users", key', f"{users!r}, key")
    exec(
        text.replace(".build(),", '.with_option("startupPosition", EARLIEST).build(),', 1),
        {"__name__": "__main__", "EARLIEST": {"type": "earliest"}},
    )
    kafka.send(names, [("Ada", "Ada"), ("Alan", None)])
    run(load_module_files([], components=given["components"]), functions, checkpoint)
    assert [(record.key, record.value) for record in kafka.receive(users)] == [("Ada", "seen")]


@pytest.mark.long(minutes=0.6)
@pytest.mark.broker
@pytest.mark.spark
def test_the_payment_is_tried_five_times_and_buried(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one, two, four and eight seconds more; its dead letter is delivered exactly once."""
    payments, dead = kafka.topic("payments"), kafka.topic("dead")
    functions = StatefulFunctions()
    monkeypatch.setattr(statefun, "function", functions.bind)
    exec(block("docs/failures.md", "python", "docs/payment"), {})
    egress = (
        block("docs/kafka.md", "yaml", "deadLetterTopic")
        .replace("${KAFKA_ADDRESS:-localhost:9092}", kafka.address)
        .replace("payments-dead-letters", dead)
    )
    module = f"{kafka.module({payments: ['com.example.docs/payment']})}---\n{egress}"
    clock = FileClock(tmp_path / "clock")
    kafka.send(payments, [("Ada", "100 EUR")])
    done = []
    for seconds in (0, 1, 3, 7, 14, 15, 100):
        clock.set(seconds)
        summary = run(module, functions, checkpoint, clock=clock)
        done.append((summary.retries, summary.dead_letters))

    assert done == [(1, 0)] * 4 + [(0, 0), (0, 1), (0, 0)]
    (letter,) = kafka.receive(dead)
    assert (letter.key, letter.value) == ("Ada", "100 EUR")
    assert letter.headers["statefun-attempts"] == "5"


@pytest.mark.broker
@pytest.mark.spark
def test_the_coroutine_answers(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Every record comes out, with its key."""
    asked, rates = kafka.topic("asked"), kafka.topic("rates")
    functions = StatefulFunctions()

    def send(egress: str, **parts: Any) -> KafkaEgressMessage:
        assert egress == "com.example.guide/out"
        return KafkaEgressMessage("test/out", **{**parts, "topic": rates})

    code = block("docs/functions.md", "python", "com.example.guide/rates")
    names = {
        "Context": Context,
        "Message": Message,
        "KafkaEgressMessage": send,
        "function": functions.bind,
    }
    exec(code.replace("from statefun import KafkaEgressMessage\n", ""), names)
    kafka.send(asked, [(name, name) for name in ("EUR", "USD")])
    module = kafka.module({asked: ["com.example.guide/rates"]})
    run(
        module.replace("valueType: io.statefun.types/string", "valueFormat: {type: text}"),
        functions,
        checkpoint,
    )

    received = sorted((record.key, record.value) for record in kafka.receive(rates))
    assert received == [("EUR", "EUR"), ("USD", "USD")]


def test_the_page_about_tests_has_one_that_passes(tmp_path: Path) -> None:
    """Of the program and the module file that the README shows."""
    (tmp_path / "app.py").write_text(block("README.md", "python", "com.example.docs/greeter"))
    (tmp_path / "module.yaml").write_text(block("README.md", "yaml", "com.example.docs/users"))
    text = block("docs/testing.md", "python", "test_everybody_is_greeted")
    (tmp_path / "test_app.py").write_text(text)

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 passed" in ended.stdout, ended.stdout


def test_the_readme_begins_like_the_tutorial() -> None:
    """Both have the same two files."""
    for language in ("python", "yaml"):
        first, *_ = blocks("docs/tutorial.md", language)
        [only] = blocks("README.md", language)
        assert only.text == first.text


@pytest.mark.long(minutes=0.9)
@pytest.mark.broker
@pytest.mark.spark
def test_the_tutorial_ends_with_a_test_that_passes(tmp_path: Path) -> None:
    """Each step is added to the files of the one before; then pytest runs, in its own process."""
    app, doorbell, test = (each.text for each in blocks("docs/tutorial.md", "python"))
    module, topics = (each.text for each in blocks("docs/tutorial.md", "yaml"))
    head, main = app.split("if __name__", 1)
    ingress, egress = module.split("---\n")
    ingress = ingress.partition("  topics:")[0] + textwrap.indent(topics, "  ")
    (tmp_path / "app.py").write_text(f"{head}{doorbell}\n\nif __name__{main}")
    (tmp_path / "module.yaml").write_text(f"{ingress}---\n{egress}")
    (tmp_path / "test_app.py").write_text(test)
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
