# SPDX-License-Identifier: Apache-2.0
"""Ingresses that are added, removed, renamed and moved in the module files of one checkpoint."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, run

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.cli import main
from statefun.sdk.errors import CheckpointError, FunctionError

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EDITS = int(os.environ.get("STATEFUN_INGRESS_EDITS", "4"))
"""How many random edits there are; with 30, the test takes a minute and a half."""


def module(
    kafka: KafkaHarness,
    ingresses: Iterable[tuple[str, Sequence[str]]],
    start: str = "earliest",
    folder: Path | None = None,
) -> str:
    """Write a module file: ingresses with their names and topics or folders, and the egress ``test/out``.

    Args:
        kafka: the broker.
        ingresses: the names of ingresses, each with its topics.
        start: the startup position.
        folder: if an ingress has no topics, it reads the files in this folder.

    The ingress ``replays`` is that of the replay topic of the egress.
    """
    declared = dict(ingresses)
    again = "".join(
        f", deadLetterTopic: {topic}-dead, replayTopic: {topic}"
        for topic in declared.pop("replays", ())
    )
    documents = [
        f"kind: io.statefun.kafka.v1/egress\nspec: {{id: test/out, address: '{kafka.address}'{again}}}\n"
    ]
    for name, topics in declared.items():
        routes = ", ".join(
            f"{{topic: {topic}, valueType: test/text, targets: [t.fns/echo]}}" for topic in topics
        )
        if not topics:
            documents.append(
                "kind: io.statefun.file.v1/ingress\n"
                f"spec: {{id: test/{name}, files: [{{path: '{folder}', format: {{type: lines}},\n"
                "  valueType: test/text, targets: [t.fns/echo]}]}\n"
            )
            continue
        documents.append(
            "kind: io.statefun.kafka.v1/ingress\n"
            f"spec: {{id: test/{name}, address: '{kafka.address}', consumerGroupId: {name},\n"
            f"  startupPosition: {{type: {start}}}, topics: [{routes}]}}\n"
        )
    return "---\n".join(documents)


def echo(topic: str) -> StatefulFunctions:
    """Return a function that sends its messages to another one, which writes them to ``topic``."""
    functions = StatefulFunctions()

    @functions.bind("t.fns/echo")
    def echo(ctx: Context, message: Message) -> None:
        ctx.send(Message("t.fns/write", ctx.address.id, message.typed_value))

    @functions.bind("t.fns/write", [ValueSpec("seen", IntType)])
    def write(ctx: Context, message: Message) -> None:
        ctx.storage.seen = 1  # so the message waits for the next micro-batch
        text = message.raw_value().decode()
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key="k", value=text))

    return functions


def broken() -> StatefulFunctions:
    """Return functions whose second failure ends the run, when a micro-batch after the first is planned."""
    functions = StatefulFunctions()

    @functions.bind("t.fns/echo")
    def echo(ctx: Context, message: Message) -> None:
        ctx.send(Message("t.fns/write", ctx.address.id, message.typed_value))

    @functions.bind("t.fns/write", [ValueSpec("seen", IntType)], on_failure="fail")
    def fail(_ctx: Context, _message: Message) -> None:
        raise ValueError("as the test wants it")

    return functions


def sent(kafka: KafkaHarness, topic: str, *texts: str) -> None:
    """Write records to a topic."""
    kafka.send(topic, [(text, text) for text in texts])


def replayed(kafka: KafkaHarness, topic: str, text: str) -> None:
    """Write a record to a replay topic, as ``statefun dlq replay --to-target`` does."""
    headers = [("statefun-target-type", b"t.fns/echo"), ("statefun-type", b"test/text")]
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(topic, text.encode(), text.encode(), headers=[*headers])
    assert producer.flush(30) == 0


def received(kafka: KafkaHarness, topic: str) -> list[str]:
    """Return the texts that were written, sorted."""
    return sorted(record.value for record in kafka.receive(topic))


@pytest.mark.long(minutes=0.8)
def test_random_edits_lose_and_repeat_nothing(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path
) -> None:
    """Whatever is declared in which order, and wherever a run has crashed, each record counts once."""
    chance = random.Random(EDITS)
    names, out, folder = ["a", "b", "c", "replays", "files"], kafka.topic("out"), tmp_path / "in"
    folder.mkdir()
    topics = {name: [kafka.topic(name)] for name in names[:-1]} | {"files": []}
    kafka.topic("replays-dead")
    texts: list[str] = []

    def declaring(declared: Sequence[str]) -> str:
        return module(kafka, [(name, topics[name]) for name in declared], folder=folder)

    run(declaring(["a"]), echo(out), checkpoint)
    for edit in range(EDITS):
        fed = chance.sample(names, 3)
        for name in fed:
            texts.append(f"{name}{edit:03}")
            if name == "files":
                (folder / texts[-1]).write_text(f"{texts[-1]}\n")
            elif name == "replays":
                replayed(kafka, topics[name][0], texts[-1])
            else:
                sent(kafka, topics[name][0], texts[-1])
        declared = chance.sample(names, chance.randint(1, len(names)))
        if not {*fed} & {*declared}:
            declared.append(fed[0])  # so that there is a record on which a run may crash
        functions = broken() if edit % 2 else echo(out)
        with pytest.raises(FunctionError) if edit % 2 else nullcontext():
            run(declaring(declared), functions, checkpoint)

    run(declaring(names), echo(out), checkpoint)

    assert received(kafka, out) == sorted(texts)


def test_a_new_ingress_and_a_new_topic_begin_at_the_startup_position(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Topics that were read before go on; with ``latest``, older records of new topics are left out."""
    first, second, third, out = (kafka.topic(name) for name in ("x", "y", "z", "out"))
    run(module(kafka, [("a", [first])], "latest"), echo(out), checkpoint)
    for topic, text in ((first, "read"), (second, "old"), (third, "old")):
        sent(kafka, topic, text)
    later = module(kafka, [("b", [third]), ("a", [second, first])], "latest")

    run(later, echo(out), checkpoint)
    for topic in (first, second, third):
        sent(kafka, topic, f"new in {topic[-1]}")
    run(later, echo(out), checkpoint)

    texts = ["read", *(f"new in {topic[-1]}" for topic in (first, second, third))]
    assert received(kafka, out) == sorted(texts)


def test_a_renamed_ingress_goes_on_after_the_command(
    kafka: KafkaHarness, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the command, a start is refused: it cannot know whether the ingress is the same one."""
    topic, out = kafka.topic("x"), kafka.topic("out")
    sent(kafka, topic, "one")
    run(module(kafka, [("users", [topic])]), echo(out), checkpoint)
    sent(kafka, topic, "two")

    with pytest.raises(CheckpointError, match="declared to read what ingress test/users has read"):
        run(module(kafka, [("persons", [topic])]), echo(out), checkpoint)
    assert main(["ingress", "rename", str(checkpoint), "test/users", "test/persons"]) == 0
    run(module(kafka, [("persons", [topic])]), echo(out), checkpoint)

    assert received(kafka, out) == ["one", "two"]
    assert main(["ingress", "list", str(checkpoint)]) == 0
    assert f"test/persons  read   {topic}/0: 2" in capsys.readouterr().out


def test_a_forgotten_ingress_begins_anew(kafka: KafkaHarness, checkpoint: Path) -> None:
    """It is declared after the command as if it were new."""
    topic, out = kafka.topic("x"), kafka.topic("out")
    declared = module(kafka, [("users", [topic])])
    sent(kafka, topic, "again")
    run(declared, echo(out), checkpoint)

    assert main(["ingress", "forget", "--yes", str(checkpoint), "test/users"]) == 0
    run(declared, echo(out), checkpoint)

    assert received(kafka, out) == ["again", "again"]
