# SPDX-License-Identifier: Apache-2.0
"""Topics by pattern, and single partitions, on a real broker."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from harness import KafkaHarness, run, wait
from patience import PATIENCE

from statefun import (
    BindingError,
    Context,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    TopicError,
)
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed
from statefun.runtime.ingress.identities import CLUSTERS_FILE
from statefun.runtime.settings import Settings

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def echo(out: str) -> StatefulFunctions:
    """Return functions that write their messages, with their name and the record's topic."""
    functions = StatefulFunctions()

    def write(ctx: Context, message: Message) -> None:
        topic = ctx.record.topic.rpartition(".")[2] if ctx.record else None
        text = f"{ctx.address.name} {topic} {message.raw_value().decode()}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=text))

    for name in ("one", "two"):
        functions.bind(f"test.fns/{name}")(write)
    return functions


def module(kafka: KafkaHarness, *topics: str) -> str:
    """Write a module file with these entries as the topics of its ingress."""
    text = kafka.module({}, start="{type: earliest}", group="tests")
    listed = "".join(f"    - {{{topic}, valueType: test/text}}\n" for topic in topics)
    return text.replace("  topics:\n", f"  topics:\n{listed}")


def test_topics_by_pattern_are_found_while_running(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A later topic is read from its beginning; a topic that is listed by name keeps its route."""
    out = kafka.topic("out")
    prefix = re.escape(out.removesuffix("out"))
    named = kafka.topic("event-named")
    text = module(
        kafka,
        f"topicPattern: '{prefix}event-.*', targets: [test.fns/one]",
        f"topic: '{named}', targets: [test.fns/two]",
    )
    kafka.send(named, [("key", "a")])
    arguments: dict[str, object] = {"checkpoint": checkpoint, "trigger": timedelta(seconds=1)}
    settings = Settings.resolve({}, None, **arguments)
    application = Application(parse_module(text), echo(out), settings)
    threads = ThreadPoolExecutor()
    running = threads.submit(application.run)

    def wait_for(*expected: str) -> None:
        def is_there() -> bool:
            assert not running.done()
            return sorted(record.value for record in kafka.receive(out)) == sorted(expected)

        wait(is_there)

    wait_for("two event-named a")
    kafka.send(kafka.topic("event-1", partitions=2), [("key", "b"), ("other", "c")])
    kafka.send(kafka.topic("no-event"), [("key", "d")])
    wait_for("two event-named a", "one event-1 b", "one event-1 c")
    application.stop()
    with threads, pytest.raises(KeyboardInterrupt):
        running.result(PATIENCE.total_seconds())
    assert "no topic matches" not in caplog.text
    noted = json.loads(read_framed(Folder.at(checkpoint), CLUSTERS_FILE))["test/in"]["topics"]
    assert {topic.rpartition(".")[2] for topic in noted} == {"event-named", "event-1"}


def test_a_pattern_may_match_nothing_yet(
    kafka: KafkaHarness, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says so, and later topics are read from their beginning."""
    out = kafka.topic("out")
    prefix = out.removesuffix("out")
    text = module(kafka, f"topicPattern: '{re.escape(prefix)}in.*', targets: [test.fns/one]")
    run(text, echo(out), checkpoint)
    assert "ingress test/in: no topic matches the pattern" in caplog.text
    kafka.send(kafka.topic("input"), [("key", "a")])
    run(text, echo(out), checkpoint)
    assert [record.value for record in kafka.receive(out)] == ["one input a"]


def test_a_pattern_takes_whole_names(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Topics that have a match within their names are no topics of the ingress."""
    out, within = kafka.topic("out"), kafka.topic("within")
    prefix = out.removesuffix("out")
    for name in (f"before.{prefix}with", f"{within}.after"):
        kafka.broker.create_topic(name)
        kafka.send(name, [("key", "b")])
    kafka.send(within, [("key", "a")])
    pattern = re.escape(prefix)
    text = module(
        kafka, f"topicPattern: '{pattern}with|{pattern}in|{pattern}within', targets: [test.fns/one]"
    )
    assert run(text, echo(out), checkpoint).invocations == 1
    assert [record.value for record in kafka.receive(out)] == ["one within a"]


def test_a_named_topic_may_begin_with_two_underscores(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Only patterns leave such topics out; those of a topic's name are read beside a pattern, too."""
    out = kafka.topic("out")
    prefix = out.removesuffix("out")
    heartbeat, hidden = f"__{prefix}heartbeat", f"__{prefix}hidden"
    for topic in (heartbeat, hidden):
        kafka.broker.create_topic(topic)
    for topic in (heartbeat, hidden, kafka.topic("users")):
        kafka.send(topic, [("key", "a")])
    text = module(
        kafka,
        f"topicPattern: '.*{re.escape(prefix)}(users|hidden)', targets: [test.fns/one]",
        f"topic: {heartbeat}, targets: [test.fns/two]",
    )

    run(text, echo(out), checkpoint)

    assert sorted(each.value for each in kafka.receive(out)) == ["one users a", "two heartbeat a"]


def test_progress_topics_are_no_input(kafka: KafkaHarness, checkpoint: Path) -> None:
    """However wide the pattern: otherwise the markers of an egress would cause batch after batch."""
    out, users = kafka.topic("out"), kafka.topic("users")
    prefix = re.escape(out.removesuffix("out"))
    text = module(kafka, f"topicPattern: '({prefix}users|statefun.*)', targets: [test.fns/one]")
    text = text.replace("{type: at-least-once}", "{type: exactly-once}")
    kafka.send(users, [("key", "a")])
    run(text, echo(out), checkpoint)
    kafka.send(users, [("key", "b")])
    summary = run(text, echo(out), checkpoint)
    assert summary.invocations == 1
    assert [record.value for record in kafka.receive(out)] == ["one users a", "one users b"]


def test_only_the_partitions_that_are_listed_are_read(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Each topic has its own list, and group offsets are those of the listed partitions."""
    one, two, out = kafka.topic("one", 3), kafka.topic("two", 3), kafka.topic("out")
    for topic in (one, two):
        for partition in range(3):
            kafka.send(topic, [("key", f"{partition}")], partition=partition)
    text = module(
        kafka,
        f"topic: '{one}', partitions: [0, 2], targets: [test.fns/one]",
        f"topic: '{two}', partitions: [1], targets: [test.fns/two]",
    )
    run(text, echo(out), checkpoint)
    found = sorted(record.value for record in kafka.receive(out))
    assert found == ["one one 0", "one one 2", "two two 1"]
    assert kafka.group_offsets("tests", one, 3) == [1, -1001, 1]


def test_a_listed_partition_that_does_not_exist_is_an_error(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The error has the number of existing partitions."""
    topic = kafka.topic("one", 2)
    text = module(kafka, f"topic: '{topic}', partitions: [1, 2], targets: [test.fns/one]")
    with pytest.raises(TopicError, match=r"has no partition 2; it has 2, numbered from 0"):
        run(text, echo("out"), checkpoint)


def test_dead_letters_are_no_input(kafka: KafkaHarness, checkpoint: Path) -> None:
    """A pattern that takes their topic is refused: dead letters would be read again and again."""
    text = (
        module(kafka, "topicPattern: '.*', targets: [test.fns/one]") + "  deadLetterTopic: dead\n"
    )
    with pytest.raises(
        BindingError, match=r"takes dead, a topic .*; begin the pattern with \(\?!dead\$\)"
    ):
        run(text, echo("out"), checkpoint)
