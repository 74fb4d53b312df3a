# SPDX-License-Identifier: Apache-2.0
"""Ingresses and egresses that are declared in Python, with users' own readers and writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, run

from statefun import (
    Context,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    KafkaRecord,
    KafkaStartupPosition,
    Message,
    OnFailure,
    Retry,
    StatefulFunctions,
    egress_message_builder,
    make_json_type,
)
from statefun.module.model import KafkaEgress as DeclaredEgress
from statefun.module.model import KafkaIngress as DeclaredIngress
from statefun.module.model import Module
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import EndResult, LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter

pytestmark = [pytest.mark.broker, pytest.mark.spark]

USER = make_json_type("test.deserializing/user")
TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)
RETRY = Retry(attempts=3, backoff=timedelta(milliseconds=1), then=OnFailure.DEAD_LETTER)


def users_code() -> tuple[
    Callable[[KafkaRecord], dict[str, Any] | None],
    Callable[[dict[str, Any]], KafkaEgressMessage | None],
]:
    """Return a deserializer and a serializer, as if the main program had them."""

    def read_user(record: KafkaRecord) -> dict[str, Any] | None:
        """Read 'name,age'; drop comments, and read tombstones as farewells."""
        if record.value is None:
            return {"gone": True, "key": (record.key or b"").decode()}
        text = record.value.decode()
        if text.startswith("#"):
            return None
        name, age = text.split(",")
        return {
            "name": name,
            "age": int(age),
            "at": f"{record.partition}/{record.offset}",
            "time": record.timestamp == TIME,
            "headers": [header for header, _ in record.headers],
        }

    def write_user(user: dict[str, Any]) -> KafkaEgressMessage | None:
        """Write a user with a header; drop users that are gone."""
        if "gone" in user:
            return None
        key = user.pop("name")
        return KafkaEgressMessage(
            "test/out",
            topic=user.pop("topic"),
            key=key,
            value=user,
            value_type=USER,
            headers={"v": "1"},
        )

    return read_user, write_user


READ, WRITE = users_code()


def ingress(kafka: KafkaHarness, topic: str, *targets: str) -> DeclaredIngress:
    """Declare the ingress of users."""
    return (
        KafkaIngress.for_id("test/in")
        .with_kafka_address(kafka.address)
        .with_topic(topic, targets=targets)
        .with_deserializer(READ, USER)
        .with_startup_position(KafkaStartupPosition.from_earliest())
        .build()
    )


def egress(kafka: KafkaHarness, dead: str | None = None) -> DeclaredEgress:
    """Declare the egress of users."""
    declared = KafkaEgress.for_id("test/out").with_kafka_address(kafka.address)
    if dead is not None:
        declared = declared.with_option("deadLetterTopic", dead)
        declared = declared.with_option("replayTopic", f"{dead}-again")
    return declared.with_serializer(WRITE).build()


@pytest.mark.parametrize("dispatch", ["arrow", "pandas"])
def test_records_become_values_and_values_become_records(
    kafka: KafkaHarness, checkpoint: Path, dispatch: str
) -> None:
    """Users' functions convert values and records; None drops a record, in both directions."""
    users, out = kafka.topic("users"), kafka.topic("out")
    producer = Producer({"bootstrap.servers": kafka.address})
    for value in (b"Ada,36", b"# no user", None):
        producer.produce(
            users, value, "ada", headers=[("h", b"1")], timestamp=round(TIME.timestamp() * 1000)
        )
    assert producer.flush(30) == 0
    functions = StatefulFunctions()

    @functions.bind("test.fns/greeter")
    def greeter(ctx: Context, message: Message) -> None:
        assert message.is_type(USER)
        user = message.value() | {"topic": out, "offset": ctx.record.offset if ctx.record else -1}
        ctx.send(egress_message_builder("test/out", user, USER))

    module = Module((ingress(kafka, users, "test.fns/greeter"),), (egress(kafka),))
    summary = run(module, functions, checkpoint, dispatch=dispatch)
    assert (summary.invocations, summary.egress_records) == (2, 1)
    [received] = kafka.receive(out)
    assert (received.key, received.headers) == ("Ada", {"v": "1"})
    expected = {"age": 36, "at": "0/0", "time": True, "headers": ["h"], "offset": 0}
    assert json.loads(received.value) == expected


def test_what_cannot_be_read_is_kept_as_it_was(kafka: KafkaHarness, checkpoint: Path) -> None:
    """A dead letter has the record's own bytes, whichever code failed; a replay is decoded again."""
    users, dead, out = kafka.topic("users"), kafka.topic("dead"), kafka.topic("out")
    kafka.topic("dead-again")
    kafka.send(users, [("ada", "Ada,36"), ("ada", "Ada,old"), ("bob", "Bob,7"), ("eve", None)])
    functions = StatefulFunctions()
    mended = checkpoint.parent / "mended"

    @functions.bind("test.fns/greeter", on_failure=RETRY)
    def greeter(ctx: Context, message: Message) -> None:
        user = message.value() | {"topic": out}
        if user.get("name") != "Ada" and not mended.exists():
            raise ValueError("not Ada")
        ctx.send(egress_message_builder("test/out", user, USER))

    module = Module((ingress(kafka, users, "test.fns/greeter"),), (egress(kafka, dead),))
    while True:  # a retry takes a while
        summary = run(module, functions, checkpoint)
        if summary.next_timer is None:
            break
    [eve] = [letter for letter in DeadLetters(module).read() if letter.key == b"eve"]
    assert eve.value is None
    letters = sorted(kafka.receive(dead), key=lambda letter: str(letter.key))
    assert [(letter.key, letter.value) for letter in letters] == [
        ("ada", "Ada,old"),
        ("bob", "Bob,7"),
        ("eve", ""),
    ]
    assert [letter.headers["statefun-attempts"] for letter in letters] == ["1", "3", "3"]
    assert letters[0].headers["statefun-error-type"] == "ValueError"
    assert (
        "the deserializer test/in failed on a record for test.fns/greeter/ada: ValueError: invalid "
        "literal"
    ) in letters[0].headers["statefun-error-message"]
    assert letters[1].headers["statefun-offset"] == "2"

    mended.touch()
    ends = LetterEnds(DeadLetters(module))
    assert ends.replay(LetterFilter(), to_target=True) == EndResult(3)
    run(module, functions, checkpoint)
    assert [record.key for record in kafka.receive(out)] == ["Ada", "Bob"]
    origins = [
        (letter.key, letter.headers["statefun-topic"], letter.headers["statefun-offset"])
        for letter in kafka.receive(dead)
        if letter.value == "Ada,old"
    ]
    assert origins == [("ada", users, "1")] * 2


def test_a_serializer_that_fails_fails_the_function(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The invocation's effects are taken back; the dead letter has the reason."""
    users, dead = kafka.topic("users"), kafka.topic("dead")
    kafka.topic("dead-again")
    kafka.send(users, [("ada", "Ada,36")])
    functions = StatefulFunctions()

    @functions.bind("test.fns/greeter")
    def greeter(ctx: Context, message: Message) -> None:
        ctx.send(egress_message_builder("test/out", message.value(), USER))

    run(
        Module((ingress(kafka, users, "test.fns/greeter"),), (egress(kafka, dead),)),
        functions,
        checkpoint,
    )
    [letter] = kafka.receive(dead)
    assert letter.headers["statefun-error-message"] == (
        "function test.fns/greeter at address test.fns/greeter/ada: the serializer of egress "
        "test/out failed: KeyError: 'topic'"
    )
