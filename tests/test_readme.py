# SPDX-License-Identifier: Apache-2.0
"""Every code block of the README does what it says."""

from __future__ import annotations

import re
import subprocess
import textwrap
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from harness import KafkaHarness, run
from programs import FileClock

import statefun
from statefun import (
    Context,
    FunctionError,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    StringType,
    make_json_type,
    message_builder,
)
from statefun.cli import parser
from statefun.runtime.settings import KEYS
from statefun.sdk.functions import default_functions
from statefun.sdk.types import typed
from statefun.spec import parse_module
from statefun.spec.loader import load_module_files
from statefun.spec.model import AvroValues, FromDate

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
)


def blocks(language: str) -> list[str]:
    """Return the code blocks of one language, in order."""
    return [text for kind, text in BLOCKS if kind == language]


def test_every_block_has_its_test() -> None:
    """A new block needs a test here."""
    assert [kind for kind, _ in BLOCKS] == [
        *("sh", "sh", "python", "yaml", "sh", "sh", "sh"),
        *("python", "python", "python", "yaml", "python", "python", "yaml", "sh"),
        *("yaml", "sh", "python", "sh", "text", "sh"),
    ]


@pytest.mark.broker
@pytest.mark.spark
def test_the_function_runs_with_the_module_file(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The function and module.yaml greet; a failure reads as the README shows it."""
    users, greetings = kafka.topic("users"), kafka.topic("greetings")
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    original = default_functions.for_typename("com.example.docs/greeter")
    functions = StatefulFunctions()

    @functions.bind("com.example.docs/greeter", specs=list(original.specs.values()))
    def greet(ctx: Context, message: Message) -> None:
        if message.as_string() == "nobody":
            raise ValueError("no such user")
        original.call(ctx, message)

    code = names["greet"].__code__
    topic = tuple(greetings if const == "greetings" else const for const in code.co_consts)
    names["greet"].__code__ = code.replace(co_consts=topic)
    module = (
        blocks("yaml")[0]
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
    shown = blocks("text")[0].replace("\n", " ").replace("offset 7", "offset 3").strip()
    assert f"statefun: {caught.value}".replace(users, "users") == shown


@pytest.mark.broker
@pytest.mark.spark
def test_the_doorbell_sends_messages(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Each guest's greeter gets a message from the doorbell, in Kafka's record's order."""
    rings, greetings = kafka.topic("rings"), kafka.topic("greetings")
    names: dict[str, Any] = {"Context": Context, "Message": Message}
    functions = StatefulFunctions()
    names["function"] = functions.bind
    exec(blocks("python")[1], names)

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
    """After an hour, by a clock that the test sets; who has paid is left alone."""
    carts, greetings = kafka.topic("carts"), kafka.topic("greetings")
    functions = StatefulFunctions()
    names: dict[str, Any] = {
        "Context": Context,
        "Message": Message,
        "message_builder": message_builder,
        "function": functions.bind,
    }
    exec(blocks("python")[2], names)

    @functions.bind("com.example.docs/greeter")
    def greet(ctx: Context, message: Message) -> None:
        text = message.as_string()
        ctx.send(KafkaEgressMessage("test/out", topic=greetings, value=text, key=ctx.address.id))

    module = kafka.module({carts: ["com.example.docs/cart"]})
    clock = FileClock(tmp_path / "clock")
    received = []
    for minutes, events in (
        (0, [("Ada", "filled"), ("Alan", "filled")]),
        (59, [("Alan", "paid")]),
        (60, []),
        (180, []),
    ):
        clock.set(60 * minutes)
        kafka.send(carts, ((key, typed(value, StringType).value) for key, value in events))
        run(module, functions, checkpoint, clock=clock)
        received.append([(record.key, record.value) for record in kafka.receive(greetings)])

    assert received == [[], [], [("Ada", "still?")], [("Ada", "still?")]]


def test_the_types_do_what_is_asserted() -> None:
    """The block's own assertions hold."""
    exec(blocks("python")[3], {})


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
    exec(blocks("python")[4], names)
    kafka.send(users, [("Ada", "x"), ("Alan", "forget me")])
    run(kafka.module({users: ["com.example.docs/forward"]}), functions, checkpoint)

    received = {record.key: record for record in kafka.receive(greetings)}
    assert {key: record.value for key, record in received.items()} == {"Ada": "x", "Alan": ""}
    assert received["Ada"].headers == {"origin": "forward"}


def test_the_keys_of_topics_and_of_ends_are_known(tmp_path: Path) -> None:
    """The blocks fit into an ingress."""
    (tmp_path / "user.avsc").write_text('{"type": "string"}')
    head = "kind: io.statefun.kafka.v1/ingress\nspec:\n  id: a/b\n  address: kafka:9092\n"
    text = head + "  consumerGroupId: c\n" + textwrap.indent("".join(blocks("yaml")[1:3]), "  ")
    [ingress] = parse_module(text, str(tmp_path / "module.yaml")).ingresses
    assert ingress.topics[0].value_format == AvroValues('{"type": "string"}')
    assert ingress.stop_position == FromDate(datetime(2026, 2, 1, tzinfo=timezone.utc))


@pytest.mark.broker
@pytest.mark.spark
def test_the_components_run(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record becomes a user, and a user a record; a tombstone is left out."""
    names_, users = kafka.topic("names"), kafka.topic("users")
    functions = StatefulFunctions()
    names: dict[str, Any] = {
        "__name__": "__main__",
        "Context": Context,
        "Message": Message,
        "KafkaEgressMessage": KafkaEgressMessage,
        "USER": make_json_type("com.example.docs/User-of-components"),
        "function": functions.bind,
    }
    given: dict[str, Any] = {}
    monkeypatch.setattr(statefun, "run", given.update, raising=False)
    text = blocks("python")[5].replace("localhost:9092", kafka.address)
    text = text.replace('"names"', repr(names_)).replace('"users", key', f"{users!r}, key")
    exec(
        text.replace(".build(),", '.with_option("startupPosition", EARLIEST).build(),', 1),
        {
            **names,
            "EARLIEST": {"type": "earliest"},
        },
    )
    kafka.send(names_, [("Ada", "Ada"), ("Alan", None)])
    run(load_module_files([], components=given["components"]), functions, checkpoint)
    assert [(record.key, record.value) for record in kafka.receive(users)] == [("Ada", "seen")]


@pytest.mark.broker
@pytest.mark.spark
def test_the_payment_is_tried_five_times_and_buried(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """After one, two, four and eight seconds more; its dead letter is delivered exactly once."""
    payments, dead = kafka.topic("payments"), kafka.topic("dead")
    functions = StatefulFunctions()
    names: dict[str, Any] = {"Context": Context, "Message": Message, "function": functions.bind}
    exec(blocks("python")[6], names)
    egress = (
        blocks("yaml")[3]
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


def test_the_commands_exist() -> None:
    """Make knows the targets, and the command line its commands."""
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    targets = [command.split()[1] for command in commands if command.startswith("make ")]

    done = subprocess.run(
        ["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True, check=False
    )

    for command in commands:
        if command.startswith("statefun "):
            parser().parse_args(command.split()[1:])
    assert targets == ["demo", "test"]
    assert done.returncode == 0, done.stderr


def test_the_settings_are_all_there() -> None:
    """The table lists each setting that there is."""
    listed = re.findall(r"^\| `([a-z.-]+)` \| `", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(KEYS)
