# SPDX-License-Identifier: Apache-2.0
"""Failure policies of records that no function can receive, and of messages that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, Received, run
from programs import obedient

from statefun import (
    Context,
    FunctionError,
    IntType,
    KafkaEgressMessage,
    Message,
    OnFailure,
    RecordError,
    Retry,
    SimpleType,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.dev.spark_application import FileClock
from statefun.module.loader import parse_module
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter

TEXT = SimpleType("t/text", str.encode, bytes.decode)
MODULE = {"value_type": TEXT.typename}

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def picky(topic: str, **options: Any) -> StatefulFunctions:
    """Return a function that counts, says the count, and then fails on some values."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/picky", specs=[ValueSpec("seen", IntType)], **options)
    def handle(ctx: Context, message: Message) -> None:
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        text = message.as_type(TEXT)
        ctx.send(KafkaEgressMessage("test/out", topic=topic, value=f"{text} {ctx.storage.seen}"))
        if text.startswith("bad"):
            raise ValueError(f"{text} is not to my taste")
        if text == "nowhere":
            ctx.send(KafkaEgressMessage("test/nowhere", topic=topic, value=text))

    @functions.bind("test.fns/other")
    def ignore(ctx: Context, message: Message) -> None:
        pass

    return functions


def texts(received: list[Received]) -> list[str]:
    """Return the values."""
    return [record.value for record in received]


def facts(record: Received, *names: str) -> list[str | None]:
    """Return some of a dead letter's headers."""
    return [record.headers.get(f"statefun-{name}") for name in names]


def test_what_a_function_fails_on_becomes_a_dead_letter(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The letter has the original record, its origin and the reason; other messages are not affected."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["test.fns/picky"]}, **MODULE, dead_letters=dead)
    producer = Producer({"bootstrap.servers": kafka.address})
    for value in ("one", "bad apple", "nowhere", "two"):
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"7"), ("statefun-time", b"old")]
        producer.produce(inputs, value, "Ada", headers=headers, timestamp=1_700_000_000_123)
    producer.flush(10)

    summary = run(module, picky(out), checkpoint)

    assert texts(kafka.receive(out)) == ["one 1", "two 2"]
    assert (summary.invocations, summary.dead_letters) == (4, 2)
    apple, nowhere = kafka.receive(dead)
    assert (apple.key, apple.value, apple.headers["trace"]) == ("Ada", "bad apple", "7")
    names = ("target", "type", "topic", "partition", "offset", "timestamp", "attempts", "caller")
    assert facts(apple, *names) == [
        "test.fns/picky/Ada", "t/text", inputs, "0", "1", "1700000000123", "1", None,
    ]  # fmt: skip
    assert facts(apple, "error-code", "error-type", "error-message") == [
        "SF301",
        "ValueError",
        (
            "function test.fns/picky failed at address test.fns/picky/Ada: "
            "ValueError: bad apple is not to my taste"
        ),
    ]
    assert int(apple.headers["statefun-time"]) > 1_700_000_000_123
    trace = apple.headers["statefun-traceback"].splitlines()
    assert trace[1].startswith(f'  File "{__file__}", line ')
    assert trace[2].strip() == 'raise ValueError(f"{text} is not to my taste")'
    assert facts(nowhere, "error-code", "error-type") == ["SF303", "UnknownEgressError"]


@pytest.mark.parametrize("semantic", ["at-least-once", "exactly-once"])
def test_records_that_no_function_can_get_become_dead_letters(
    kafka: KafkaHarness, checkpoint: Path, semantic: str
) -> None:
    """Each becomes one dead letter with the original bytes, for any defect and all targets."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module(
        {inputs: ["test.fns/picky", "test.fns/other"]},
        **MODULE,
        dead_letters=dead,
        semantic=semantic,
    )
    kafka.send(inputs, [(None, "a"), ("", "b"), (b"\xff", "c"), ("Ada", None), ("Ada", b"\xff")])

    summary = run(module, picky(out), checkpoint)

    letters = sorted(kafka.receive(dead), key=lambda record: record.headers["statefun-offset"])
    assert [(record.key, record.value) for record in letters] == [
        (None, "a"), ("", "b"), ("\\xff", "c"), ("Ada", ""), ("Ada", "\\xff"),
    ]  # fmt: skip
    assert [facts(record, "error-code", "target") for record in letters] == [
        *[["SF400", None]] * 4,
        ["SF302", "test.fns/picky/Ada"],
    ]
    assert summary.dead_letters == 5
    assert texts(kafka.receive(out)) == []


def test_skipped_records_are_counted_and_logged(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic's policy is for records; functions have their own."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["test.fns/picky"]}, **MODULE, on_failure="skip")
    kafka.send(inputs, [(None, "a"), ("Ada", "one"), ("Ada", "bad"), ("Ada", b"\xff")])

    with caplog.at_level(logging.WARNING, "statefun"):
        summary = run(module, picky(out, on_failure="skip"), checkpoint)

    assert texts(kafka.receive(out)) == ["one 1"]
    assert (summary.skipped, summary.dead_letters) == (3, 0)
    lines = sorted(line for line in caplog.messages if "not handled" in line)
    start = "messages not handled: 1 skipped; such as: "
    assert [line.removeprefix(start)[:7] for line in lines] == ["[SF301]", "[SF302]", "[SF400]"]


def test_policies_of_topics_win_over_their_ingress(kafka: KafkaHarness, checkpoint: Path) -> None:
    """One topic skips a record that stops the application on another topic."""
    strict, lax, out = kafka.topic("strict"), kafka.topic("lax"), kafka.topic("out")
    targets = {strict: ["test.fns/picky"], lax: ["test.fns/picky"]}
    module = kafka.module(targets, **MODULE, on_failure="fail")
    module = module.replace(f"{{topic: '{lax}', ", f"{{topic: '{lax}', failurePolicy: skip, ")
    kafka.send(lax, [(None, "a")])

    assert run(module, picky(out), checkpoint).skipped == 1

    kafka.send(strict, [(None, "a")])
    with pytest.raises(RecordError, match=r"the record has no key; .* \(topic .*strict, partition"):
        run(module, picky(out), checkpoint)


def test_a_message_is_tried_again_and_then_buried(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The pauses between attempts are the backoff and twice the backoff; other messages do not wait."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["test.fns/picky"]}, **MODULE, dead_letters=dead)
    clock = FileClock(checkpoint.with_name("clock"))
    functions = picky(out, on_failure=Retry(attempts=3, backoff=timedelta(seconds=10)))
    kafka.send(inputs, [("Ada", "bad"), ("Ada", "one")])

    clock.set(1000)
    first = run(module, functions, checkpoint, clock=clock)
    clock.set(1009)
    early = run(module, functions, checkpoint, clock=clock)
    clock.set(1010)
    second = run(module, functions, checkpoint, clock=clock)
    clock.set(1029)
    early_again = run(module, functions, checkpoint, clock=clock)
    clock.set(1031)
    third = run(module, functions, checkpoint, clock=clock)

    assert [(s.retries, s.dead_letters) for s in (first, early, second, early_again, third)] == [
        (1, 0), (0, 0), (1, 0), (0, 0), (0, 1),
    ]  # fmt: skip
    assert texts(kafka.receive(out)) == ["one 1"]
    (letter,) = kafka.receive(dead)
    assert (letter.key, letter.value) == ("Ada", "bad")
    assert facts(letter, "attempts", "topic", "offset") == ["3", inputs, "0"]


def test_a_retry_that_works_leaves_no_trace_of_failures(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The function sees the message as it was, with its caller."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["test.fns/front"]}, **MODULE)
    clock = FileClock(checkpoint.with_name("clock"))
    functions = StatefulFunctions()

    @functions.bind("test.fns/front", specs=[ValueSpec("seen", IntType)])
    def front(ctx: Context, message: Message) -> None:
        ctx.send(
            message_builder("test.fns/late", "x", value=message.as_type(TEXT), value_type=TEXT)
        )

    @functions.bind(
        "test.fns/late",
        specs=[ValueSpec("seen", IntType)],
        on_failure=Retry(2, timedelta(seconds=1), then=OnFailure.FAIL),
    )
    async def late(ctx: Context, message: Message) -> None:
        if clock.now() < 1_001_000:
            raise ConnectionError("not yet")
        value = f"{ctx.caller} {message.as_type(TEXT)} {message.value_typename()}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=value))

    kafka.send(inputs, [("Ada", "hello")])
    clock.set(1000)
    first = run(module, functions, checkpoint, clock=clock)
    clock.set(1001)
    second = run(module, functions, checkpoint, clock=clock)

    assert (first.retries, second.retries) == (1, 0)
    assert texts(kafka.receive(out)) == ["test.fns/front/Ada hello t/text"]


def test_a_token_in_use_is_a_failure_of_its_sender(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The new delayed message becomes a dead letter, and the waiting one stays."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["t.fns/a"]}, dead_letters=dead)
    clock = FileClock(checkpoint.with_name("clock"))
    after = [["after", 10, "token", "b", "x", [["emit", "first"]]]]
    again = [["after", 10, "token", "b", "x", [["emit", "second"]]]]
    kafka.send(inputs, [("Ada", json.dumps(after)), ("Ada", json.dumps(again))])

    clock.set(1000)
    summary = run(module, obedient(out), checkpoint, clock=clock)
    clock.set(1010)
    run(module, obedient(out), checkpoint, clock=clock)

    assert summary.dead_letters == 1
    (letter,) = kafka.receive(dead)
    assert facts(letter, "target", "caller", "error-code") == ["t.fns/b/x", "t.fns/a/Ada", "SF301"]
    assert [json.loads(record.value)[2] for record in kafka.receive(out)] == ["first"]


def test_nothing_that_a_function_does_escapes_its_policy(  # noqa: C901 - a branch for each
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Exits, cancellations, calls that hang and values that are too large are skipped, too."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["test.fns/plain", "test.fns/coroutine"]}, **MODULE)
    functions = StatefulFunctions()
    options: dict[str, Any] = {"on_failure": "skip", "timeout": timedelta(seconds=1)}

    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    @functions.bind("test.fns/plain", **options)
    def plain(ctx: Context, message: Message) -> None:
        match message.as_type(TEXT):
            case "exit":
                raise SystemExit
            case "cancel":
                raise asyncio.CancelledError
            case "unspeakable":
                raise UnspeakableError
            case "hang":
                time.sleep(3600)
            case "later":
                after = message_builder("test.fns/plain", "x", value="fine", value_type=TEXT)
                ctx.send_after(timedelta.max, after)
            case "large":
                large = "x" * (2**26 + 1)
                ctx.send(message_builder("test.fns/plain", "x", value=large, value_type=TEXT))
            case text:
                ctx.send(KafkaEgressMessage("test/out", topic=out, value=text))

    @functions.bind("test.fns/coroutine", **options)
    async def coroutine(ctx: Context, message: Message) -> None:
        if message.as_type(TEXT) == "hang":
            await asyncio.sleep(3600)
        plain(ctx, message)

    texts_sent = ["exit", "cancel", "unspeakable", "hang", "later", "large", "fine"]
    kafka.send(inputs, [(text, text) for text in texts_sent])

    summary = run(module, functions, checkpoint)

    assert texts(kafka.receive(out)) == ["fine"] * 2
    assert (summary.invocations, summary.skipped, summary.next_timer) == (14, 12, None)


def test_a_failure_stops_the_application_unless_a_policy_says_otherwise(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """This is so without a dead-letter topic, and with a function's own policy even with a topic."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["test.fns/picky"]}, **MODULE, dead_letters=dead)
    kafka.send(inputs, [("Ada", "bad")])

    with pytest.raises(FunctionError, match=rf"bad is not to my taste \(topic {inputs}, part"):
        run(module, picky(out, on_failure="fail"), checkpoint)

    assert kafka.receive(dead) == []


def test_what_is_large_becomes_a_dead_letter_that_fits(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Texts are cut, and a value that does not fit stays in the topic of its record."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["test.fns/picky"]}, **MODULE, dead_letters=dead)
    producer = Producer({"bootstrap.servers": kafka.address, "message.max.bytes": 1_048_500})
    for key, value in (
        ("Ada", "bad" + "x" * 1_000_100),  # too large to be sent on as well
        ("k" * 350_000, "bad"),
        ("Alan", "bad" + "y" * 400_000),
        ("Grace", "good"),
    ):
        producer.produce(inputs, value, key)
    producer.flush(10)

    summary = run(module, picky(out), checkpoint)

    assert texts(kafka.receive(out)) == ["good 1"]
    assert summary.dead_letters == 3
    large, long, quoted = sorted(
        kafka.receive(dead), key=lambda record: record.headers["statefun-offset"]
    )
    assert (large.key, large.value) == ("Ada", "")
    assert facts(large, "left-out", "topic", "offset") == ["value", inputs, "0"]
    assert (long.key, long.value) == ("k" * 350_000, "bad")
    assert facts(long, "left-out", "cut") == [None, "error-message,target"]
    assert (quoted.key, quoted.value) == ("Alan", "bad" + "y" * 400_000)
    assert facts(quoted, "left-out", "cut") == [None, "error-message"]
    letters = DeadLetters(parse_module(module))
    assert {letter.target_id for letter in letters.read()} == {b"Ada", None, b"Alan"}
    result = LetterEnds(letters).replay(LetterFilter(), to_target=False)
    assert result.count == 2
    [stays] = result.problems
    assert "lacks the value of its record, which was too large for it" in stays.message
    assert f"; send the record at topic {inputs}, partition 0" in stays.message


@pytest.mark.parametrize("policy", ["dead-letter", "fail"])
def test_a_record_too_large_for_its_egress_fails_its_function(
    kafka: KafkaHarness, checkpoint: Path, policy: str
) -> None:
    """Key and headers count towards the limit in the egress's properties; no other message fails."""
    inputs, out, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    module = kafka.module({inputs: ["test.fns/large"]}, **MODULE, dead_letters=dead)
    module += "  properties: [{max.request.size: 20000}]\n"
    functions = StatefulFunctions()

    @functions.bind("test.fns/large", on_failure=policy)
    def large(ctx: Context, message: Message) -> None:
        size = int(message.as_type(TEXT))
        parts: dict[str, Any] = {"key": "k", "headers": {"h": b"x" * size}, "value": str(size)}
        ctx.send(KafkaEgressMessage("test/out", topic=out, **parts))

    kafka.send(inputs, [("a", "19000"), ("b", "20000"), ("c", "7")])

    if policy == "fail":
        with pytest.raises(FunctionError, match=r"has 20,007 bytes with key and headers, but the"):
            run(module, functions, checkpoint)
        return
    run(module, functions, checkpoint)

    assert sorted(texts(kafka.receive(out))) == ["19000", "7"]
    (letter,) = kafka.receive(dead)
    assert (letter.key, letter.value) == ("b", "20000")
