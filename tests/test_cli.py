# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, run

from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    SimpleType,
    StatefulFunctions,
    TopicError,
    ValueSpec,
    message_builder,
)
from statefun.cli import main
from statefun.inspect.dead_letters import DeadLetters
from statefun.module.loader import parse_module

TEXT = SimpleType("t/text", str.encode, bytes.decode)

pytestmark = [pytest.mark.broker, pytest.mark.takes(minutes=1.6)]


def functions(out: str, *, fixed: bool) -> StatefulFunctions:
    """Return functions that fail on "bad" messages until they are fixed."""
    registry = StatefulFunctions()

    @registry.bind("t.fns/front", specs=[ValueSpec("seen", IntType)])
    def front(ctx: Context, message: Message) -> None:
        handle(ctx, message)
        ctx.send(message_builder("t.fns/back", "x", value=message.as_type(TEXT), value_type=TEXT))

    @registry.bind("t.fns/back", specs=[ValueSpec("seen", IntType)])
    def back(ctx: Context, message: Message) -> None:
        handle(ctx, message)

    def handle(ctx: Context, message: Message) -> None:
        text = message.as_type(TEXT)
        if not fixed and text == f"bad {ctx.address.name}":
            raise ValueError(text)
        value = f"{ctx.address.name} {text}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=value))

    return registry


@pytest.mark.spark
def test_dead_letters_are_listed_shown_and_replayed(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the failure to the fix: each goes on its way again, once."""
    inputs, out, dead, again = (kafka.topic(name) for name in ("in", "out", "dead", "again"))
    module = kafka.module({inputs: ["t.fns/front"]}, value_type="t/text", dead_letters=dead)
    module += f"  replayTopic: {again}\n"
    file = tmp_path / "module.yaml"
    file.write_text(module)
    records = [("Ada", "fine"), ("Ada", "bad front"), ("Alan", "bad back"), (None, "keyless")]
    kafka.send(inputs, records)
    run(module, functions(out, fixed=False), checkpoint)
    capsys.readouterr()

    def command(*arguments: str) -> str:
        code = main(["dlq", *arguments, "--module", str(file)])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        return printed.out

    listed = command("list").splitlines()
    shown = command("show", "0/0")
    app, empty = tmp_path / "app.py", tmp_path / "other.yaml"
    empty.write_text("kind: io.statefun.playground.v1/egress\nspec: {port: 8090, topics: [a]}\n")
    app.write_text(
        "from statefun import KafkaEgress\n"
        f"egress = KafkaEgress.for_id('test/out').with_kafka_address({kafka.address!r})"
        f".with_option('deadLetterTopic', {dead!r}).build()\n"
    )
    assert main(["dlq", "list", "--module", str(app), "--module", str(empty)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(listed)
    letters = {letter.value: letter for letter in DeadLetters(parse_module(module)).read()}
    to_topic = command("replay", letters[b"bad front"].id)
    to_target = command("replay", "--to-target", letters[b"bad back"].id)
    run(module, functions(out, fixed=True), checkpoint)

    assert listed[0].split() == ["id", "age", "reason", "address", "from"]
    assert len(listed) == 5
    (front,) = [line for line in listed if "t.fns/front/Ada" in line]
    assert front.split()[-4:-1] == ["SF301", "ValueError", "t.fns/front/Ada"]
    assert "  error-code: SF" in shown
    assert to_topic == "replayed 1 dead letters into their topics\n"
    assert to_target == "replayed 1 dead letters to their targets\n"
    assert sorted(record.value for record in kafka.receive(out)) == [
        "back bad back",
        "back bad front",
        "back fine",
        "front bad back",
        "front bad front",
        "front fine",
    ]
    assert command("list").splitlines()[-1] == f"1 dead letters in topic {dead}"


@pytest.fixture
def letters(kafka: KafkaHarness, tmp_path: Path) -> tuple[Path, str, str]:
    """Return a module file with 2,500 dead letters, their topic and their original topic."""
    inputs, dead = kafka.topic("in"), kafka.topic("dead", 2)
    file = tmp_path / "module.yaml"
    file.write_text(kafka.module({inputs: ["t.fns/f"]}, dead_letters=dead))
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(2500):
        headers: list[tuple[str, str | bytes | None]] = [
            ("own", b"header"),
            ("statefun-topic", inputs.encode()),
            ("statefun-time", b"1700000000000"),
        ]
        producer.produce(dead, f"{number}", f"key-{number % 7}", headers=headers)
    producer.flush(30)
    return file, dead, inputs


def test_all_are_replayed_once(letters: tuple[Path, str, str], kafka: KafkaHarness) -> None:
    """In their order and original form, without our headers; a second replay has none."""
    file, _, inputs = letters

    assert main(["dlq", "replay", "--all", "--module", str(file)]) == 0
    assert main(["dlq", "replay", "--all", "--module", str(file)]) == 0

    received = kafka.receive(inputs)
    assert sorted(int(record.value) for record in received) == list(range(2500))
    assert {tuple(record.headers.items()) for record in received} == {(("own", "header"),)}


def test_a_replay_that_died_is_repeated_without_duplicates(
    letters: tuple[Path, str, str], kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of uncommitted transactions do not count."""
    file, _, inputs = letters
    original = vars(DeadLetters)["_write"]
    calls = []

    def dying(self: DeadLetters, producer: Producer, records: list[object]) -> None:
        calls.append(len(records))
        if len(calls) == 2:
            producer.begin_transaction()
            producer.produce(inputs, "half")
            producer.flush(10)
            raise KeyboardInterrupt
        original(self, producer, records)

    monkeypatch.setattr(DeadLetters, "_write", dying)
    assert main(["dlq", "replay", "--all", "--module", str(file)]) == 130
    assert main(["dlq", "replay", "--all", "--module", str(file)]) == 0

    assert calls == [1000, 1000, 1000, 500]
    assert sorted(int(record.value) for record in kafka.receive(inputs)) == list(range(2500))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "7/7"], "[SF100] no dead letter has the id 7/7, or it was replayed already"),
        (["replay", "7/7"], "[SF100] no dead letter has the id 7/7, or it was replayed already"),
        (["replay", "--all", "--to-target"], "[SF100] egress test/out has no replayTopic"),
    ],
)
def test_what_cannot_be_done_is_said(
    letters: tuple[Path, str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    """One line on standard error, and the exit code 1."""
    code = main(["dlq", *arguments, "--module", str(letters[0])])

    assert code == 1
    assert capsys.readouterr().err.startswith(f"statefun: {expected}")


def test_a_module_without_dead_letters_is_named(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a file that is not there, too."""
    file = tmp_path / "module.yaml"
    file.write_text(kafka.module({"in": ["t/f"]}))

    assert main(["dlq", "list", "--module", str(file)]) == 1
    assert main(["dlq", "list", "--module", str(tmp_path / "other.yaml")]) == 1
    assert "no egress has a deadLetterTopic" in capsys.readouterr().err


def test_a_replay_needs_to_know_of_what(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither nothing nor two things at once."""
    for arguments in ([], ["0/1", "--all"]):
        with pytest.raises(SystemExit):
            main(["dlq", "replay", *arguments])
    assert "name the dead letters to replay, or give --all" in capsys.readouterr().err


def test_nothing_that_a_record_holds_reaches_the_terminal_as_it_is(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key cannot clear the screen, nor begin a line of its own."""
    inputs, dead = kafka.topic("in"), kafka.topic("dead")
    file = tmp_path / "module.yaml"
    file.write_text(kafka.module({inputs: ["t.fns/front"]}, dead_letters=dead))
    evil = "\x1b[2J\nfine \u202e\x9b"
    names = ("target", "error-type", "error-message", "caller", evil)
    headers: list[tuple[str, str | bytes | None]] = [
        *((f"statefun-{name}", evil.encode()) for name in names),
        (evil, evil.encode()),
    ]
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(dead, evil, evil, headers=headers)
    producer.flush(10)

    for arguments, lines in ((["list"], 3), (["show", "0/0"], 9)):
        assert main(["dlq", *arguments, "--module", str(file)]) == 0
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == lines
        assert printed.replace("\n", "").isprintable()
        assert "\\x1b[2J\\nfine" in printed


@pytest.mark.spark
@pytest.mark.parametrize("semantic", ["exactly-once", "at-least-once"])
def test_a_record_that_stops_an_application_is_taken_out(
    kafka: KafkaHarness, checkpoint: Path, capsys: pytest.CaptureFixture[str], semantic: str
) -> None:
    """From the wedge to the next start: everything else is published, once."""
    inputs, out = kafka.topic("in"), kafka.topic("out")
    module = kafka.module({inputs: ["t.fns/f"]}, value_type="t/text", semantic=semantic)
    registry = StatefulFunctions()

    @registry.bind("t.fns/f")
    def f(ctx: Context, message: Message) -> None:
        value = message.as_type(TEXT)
        topic = f"{out}.missing" if value == "poison" else out
        ctx.send(KafkaEgressMessage("test/out", topic=topic, key=ctx.address.id, value=value))

    records = [(f"k{n % 7}", "poison" if n == 20 else f"{n}") for n in range(40)]
    kafka.send(inputs, records)
    for _ in range(2):
        with pytest.raises(TopicError, match="the records are kept in the outbox"):
            run(module, registry, checkpoint, records_per_batch=10)
    capsys.readouterr()

    assert main(["outbox", "list", "--records", str(checkpoint)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if ".missing" in line]
    batch, state, egress, _, number, topic, key, _ = line.split()
    assert (state, egress, topic, key) == ("committed", "test/out", f"{out}.missing", "k6")
    command = ["outbox", "skip", str(checkpoint), "--batch", batch, "--egress", egress]
    assert main([*command, "--record", number, "--yes"]) == 0
    summary = run(module, registry, checkpoint)

    values = [record.value for record in kafka.receive(out)]
    once = values if semantic == "exactly-once" else list(dict.fromkeys(values))
    assert sorted(once) == sorted(value for _, value in records if value != "poison")
    assert summary.refused == 0
    capsys.readouterr()
    assert main(["outbox", "list", str(checkpoint)]) == 0
    assert capsys.readouterr().out.startswith("no batches with records to publish")
