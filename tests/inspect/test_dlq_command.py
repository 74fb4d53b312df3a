# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import datetime, timezone
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
    StringType,
    ValueSpec,
    message_builder,
)
from statefun.cli import main
from statefun.dev.records import read_records
from statefun.module.loader import parse_module
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import LetterEnds

TEXT = SimpleType("t/text", str.encode, bytes.decode)

Capture = pytest.CaptureFixture[str]

pytestmark = [pytest.mark.broker, pytest.mark.takes(minutes=0.9)]


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


@pytest.mark.long(minutes=0.9)
@pytest.mark.spark
def test_dead_letters_are_listed_shown_and_replayed(
    kafka: KafkaHarness, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the function was corrected, each letter is replayed once."""
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
    shown = command("show", letters[b"bad front"].id)
    to_topic = command("replay", letters[b"bad front"].id)
    to_target = command("replay", "--to-target", letters[b"bad back"].id)
    run(module, functions(out, fixed=True), checkpoint)

    assert listed[0].split() == ["id", "time", "(UTC)", "address", "from", "error"]
    assert len(listed) == 5
    (front,) = [line for line in listed if "t.fns/front/Ada" in line]
    id_, day, _, *cells = front.split(maxsplit=5)
    assert id_ == letters[b"bad front"].id
    assert f"{datetime.now(timezone.utc):%Y}" in day
    assert cells == ["t.fns/front/Ada", f"{inputs}/0/1", "SF301 ValueError: bad front"]
    assert "  error: SF301 ValueError\n" in shown
    assert "  value: bad front\n" in shown
    assert f"  record: topic {inputs}, partition 0, offset 1, written 20" in shown
    assert "        raise ValueError(text)\n" in shown
    assert to_topic == "replayed 1 dead letter into their topics\n"
    assert to_target == "replayed 1 dead letter to their targets\n"
    assert sorted(record.value for record in kafka.receive(out)) == [
        "back bad back",
        "back bad front",
        "back fine",
        "front bad back",
        "front bad front",
        "front fine",
    ]
    assert command("list").splitlines()[-1] == f"1 dead letter in topic {dead}"


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
    """Records have their order and form, without added headers; a second replay finds none."""
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
    original = vars(LetterEnds)["_write"]
    calls = []

    def dying(self: LetterEnds, producer: Producer, records: list[object]) -> object:
        calls.append(len(records))
        if len(calls) == 2:
            producer.begin_transaction()
            producer.produce(inputs, "half")
            producer.flush(10)
            raise KeyboardInterrupt
        return original(self, producer, records)

    monkeypatch.setattr(LetterEnds, "_write", dying)
    assert main(["dlq", "replay", "--all", "--module", str(file)]) == 130
    assert main(["dlq", "replay", "--all", "--module", str(file)]) == 0

    assert calls == [1000, 1000, 1000, 500]
    assert sorted(int(record.value) for record in kafka.receive(inputs)) == list(range(2500))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "7/7"], "[SF100] no dead letter has the id 7/7, or it was replayed or"),
        (["replay", "7/7"], "[SF100] no dead letter has the id 7/7, or it was replayed or"),
        (["replay", "--all", "--to-target"], "[SF100] egress test/out has no replayTopic"),
    ],
)
def test_errors_of_the_command_are_one_line(
    letters: tuple[Path, str, str],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    """The line is on standard error, and the exit code is 1."""
    code = main(["dlq", *arguments, "--module", str(letters[0])])

    assert code == 1
    assert capsys.readouterr().err.startswith(f"statefun: {expected}")


def test_a_module_without_dead_letters_is_named(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says that no egress has a dead-letter topic; a missing file is an error, too."""
    file = tmp_path / "module.yaml"
    file.write_text(kafka.module({"in": ["t/f"]}))

    assert main(["dlq", "list", "--module", str(file)]) == 1
    assert main(["dlq", "list", "--module", str(tmp_path / "other.yaml")]) == 1
    assert "no egress has a deadLetterTopic" in capsys.readouterr().err


def test_a_replay_needs_ids_or_filters(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a selection of dead letters, or with two, replay and drop are errors."""
    for action in ("replay", "drop"):
        for arguments in ([], ["0/1", "--all"], ["0/1", "--error", "SF301"]):
            with pytest.raises(SystemExit):
                main(["dlq", action, *arguments])
            errors = capsys.readouterr().err
            assert f"the ids of the dead letters to {action}, or a filter, or --all" in errors
    with pytest.raises(SystemExit):
        main(["dlq", "list", "--since", "yesterday"])
    assert "'yesterday' is not a time: write a time such as 2026" in capsys.readouterr().err


def test_nothing_that_a_record_holds_reaches_the_terminal_as_it_is(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key cannot clear the screen, or begin a new line."""
    inputs, dead = kafka.topic("in"), kafka.topic("dead")
    file = tmp_path / "module.yaml"
    file.write_text(kafka.module({inputs: ["t.fns/front"]}, dead_letters=dead))
    evil = "\x1b[2J\nfine \u202e\x9b"
    names = ("target", "error-type", "error-message", "caller", "traceback", evil)
    headers: list[tuple[str, str | bytes | None]] = [
        *((f"statefun-{name}", evil.encode()) for name in names),
        (evil, evil.encode()),
    ]
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(dead, evil, evil, headers=headers)
    producer.flush(10)

    for arguments, lines in ((["list"], 3), (["show", "0/0"], 12), (["list", "--json"], 1)):
        assert main(["dlq", *arguments, "--module", str(file)]) == 0
        printed = capsys.readouterr().out
        assert len(printed.splitlines()) == lines
        if "--json" in arguments:
            assert json.loads(printed)["target"] == evil
            continue
        assert printed.replace("\n", "").isprintable()
        assert "\\x1b[2J\\nfine" in printed


Letter = dict[str, str]


class Dead:
    """A dead-letter topic that letters are written to, and the command about them."""

    def __init__(self, kafka: KafkaHarness, folder: Path, capsys: Capture, again: str = "") -> None:
        self.kafka = kafka
        self.inputs, self.topic = kafka.topic("in"), kafka.topic("dead")
        self._file = folder / "module.yaml"
        self._file.write_text(
            kafka.module({self.inputs: ["t.fns/f"]}, dead_letters=self.topic)
            + (f"  replayTopic: {again}\n" if again else "")
        )
        self._capsys = capsys

    def write(self, *letters: tuple[str | bytes | None, Letter]) -> None:
        """Write letters of these values and facts."""
        producer = Producer({"bootstrap.servers": self.kafka.address})
        for value, facts in letters:
            headers: list[tuple[str, str | bytes | None]] = [
                (f"statefun-{name.replace('_', '-')}", text.encode())
                for name, text in facts.items()
            ]
            producer.produce(self.topic, value, "Ada", headers=[("own", b"h"), *headers])
        assert producer.flush(30) == 0

    def command(self, *arguments: str, status: int = 0) -> str:
        """Return what a command prints, on both streams."""
        assert main(["dlq", *arguments, "--module", str(self._file)]) == status
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    def ids(self, *arguments: str) -> list[str]:
        """Return the ids of the letters that are listed."""
        lines = self.command("list", "--json", *arguments).splitlines()
        return [json.loads(line)["id"] for line in lines]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["0/0", "0/1", "0/2"]),
        (["--function", "t.fns/a"], ["0/0", "0/1"]),
        (["--function", "t.fns/a/Ada"], ["0/0"]),
        (["--error", "SF302"], ["0/1", "0/2"]),
        (["--error", "KeyError"], ["0/0"]),
        (["--topic", "orders"], ["0/1"]),
        (["--since", "2023-11-14T22:13:21"], ["0/1", "0/2"]),
        (["--since", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:22"], ["0/1"]),
        (["--since", "1h"], []),
        (["--function", "t.fns/a", "--error", "SF302"], ["0/1"]),
    ],
)
def test_letters_are_filtered(
    kafka: KafkaHarness, tmp_path: Path, capsys: Capture, arguments: list[str], expected: list[str]
) -> None:
    """Filters compare function, error, topic and time; letters without such a fact do not pass."""
    dead = Dead(kafka, tmp_path, capsys)
    a, at = {"target_type": "t.fns/a"}, "170000000{}000".format
    dead.write(
        (
            "1",
            {
                **a,
                "target": "t.fns/a/Ada",
                "error_code": "SF301",
                "error_type": "KeyError",
                "time": at(0),
            },
        ),
        (
            "2",
            {**a, "target": "t.fns/a/Bob", "error_code": "SF302", "topic": "orders", "time": at(1)},
        ),
        ("3", {"error_code": "SF302", "time": at(2)}),
    )

    assert dead.ids(*arguments) == expected


def test_letters_are_json(kafka: KafkaHarness, tmp_path: Path, capsys: Capture) -> None:
    """Times are in ISO 8601, numbers are numbers, and bytes that are not text are in base64."""
    dead = Dead(kafka, tmp_path, capsys)
    facts = {"error_code": "SF301", "offset": "7", "time": "1700000000000", "timestamp": "odd"}
    dead.write(("größer", facts), (b"\xff", {}))

    first, second = map(json.loads, dead.command("list", "--json").splitlines())

    assert first == json.loads(dead.command("show", "0/0", "--json"))
    assert first == {
        "id": "0/0",
        "error_code": "SF301",
        "offset": 7,
        "time": "2023-11-14T22:13:20Z",
        "timestamp": "odd",
        "key": "Ada",
        "value": "größer",
        "headers": [["own", "h"]],
    }
    assert second["value"] == {"base64": "/w=="}


def test_dropped_letters_are_done(kafka: KafkaHarness, tmp_path: Path, capsys: Capture) -> None:
    """Dropped letters are neither listed nor replayed any more."""
    dead = Dead(kafka, tmp_path, capsys)
    for number in range(3):
        dead.write((f"{number}", {"topic": dead.inputs, "error_code": f"SF30{number}"}))

    assert dead.command("drop", "0/0") == "dropped 1 dead letter\n"
    assert dead.command("drop", "--error", "SF302") == "dropped 1 dead letter\n"
    assert "[SF100] no dead letter has the id 0/0" in dead.command("drop", "0/0", status=1)
    assert dead.ids() == ["0/1"]
    assert dead.command("replay", "--all") == "replayed 1 dead letter into their topics\n"
    assert [record.value for record in kafka.receive(dead.inputs)] == ["1"]
    assert dead.command("list") == f"topic {dead.topic} has no dead letters that wait\n"


def test_a_replay_goes_on_with_what_it_can(
    kafka: KafkaHarness, tmp_path: Path, capsys: Capture
) -> None:
    """For each letter that stays the reason is printed, and the command fails."""
    again = kafka.topic("again")
    dead = Dead(kafka, tmp_path, capsys, again)
    to_a = {"target_type": "t.fns/a", "target": "t.fns/a/Ada"}
    dead.write(
        ("1", {"error_message": "no key"}),
        ("2", to_a),
        ("3", {**to_a, "left_out": "value", "topic": "users", "partition": "0", "offset": "5"}),
        ("4", {**to_a, "topic": "gone"}),
    )

    printed = dead.command("replay", "--all", "--to-target", status=1)

    assert printed.splitlines() == [
        "replayed 2 dead letters to their targets",
        (
            "statefun: [SF100] dead letter 0/0 has no target: its record could not be read (no "
            "key); replay it without --to-target"
        ),
        (
            "statefun: [SF100] dead letter 0/2 lacks the value of its record, which was too large for "
            "it; send the record at topic users, partition 0, offset 5 again"
        ),
        "statefun: 2 dead letters stay",
    ]
    assert dead.ids() == ["0/0", "0/2"]
    assert [record.value for record in kafka.receive(again)] == ["2", "4"]


def test_a_letter_of_a_topic_that_is_gone_stays(
    kafka: KafkaHarness, tmp_path: Path, capsys: Capture
) -> None:
    """The other letters are replayed."""
    dead = Dead(kafka, tmp_path, capsys)
    dead.write(("1", {"topic": "gone"}), ("2", {"topic": dead.inputs}))

    printed = dead.command("replay", "--all", status=1)

    assert "dead letter 0/0 came from topic gone, which does not exist any more" in printed
    assert [record.value for record in kafka.receive(dead.inputs)] == ["2"]


def test_a_changed_value_is_replayed(
    kafka: KafkaHarness, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new value is from a file, standard input or an editor; the letter is then settled."""
    again = kafka.topic("again")
    dead = Dead(kafka, tmp_path, capsys, again)
    text = StringType.serializer().serialize
    to_a = {"target_type": "t.fns/a", "target": "t.fns/a/Ada"}
    number = {**to_a, "type": IntType.typename}
    cut = {**to_a, "left_out": "value"}
    dead.write(
        ('{"n": "1"}', to_a),
        (text("helo"), {**to_a, "type": StringType.typename}),
        (IntType.serializer().serialize(-7), number),
        (None, cut),
        (b"\xff", to_a),
    )
    file = tmp_path / "new.json"
    file.write_text('{"n": 1}')
    monkeypatch.setenv("EDITOR", "sed -i s/helo/hello/")
    monkeypatch.delenv("VISUAL", raising=False)

    done = "replayed 1 dead letter to their targets\n"
    assert dead.command("edit", "0/0", str(file), "--to-target") == done
    assert dead.command("edit", "0/1", "--to-target") == done
    assert "  value: -7\n" in dead.command("show", "0/2")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"7")))
    assert dead.command("edit", "0/2", "-", "--to-target") == done
    assert dead.command("edit", "0/3", str(file), "--to-target") == done
    unchanged = dead.command("edit", "0/4", "--to-target", status=1)

    assert [record.value for record in read_records(kafka.address, again)] == [
        b'{"n": 1}',
        text("hello"),
        IntType.serializer().serialize(7),
        b'{"n": 1}',
    ]
    assert (
        "the value of dead letter 0/4 is not text, and cannot be edited; give a file with a new value"
        in unchanged
    )
    assert dead.ids() == ["0/4"]


def test_a_letter_without_a_valid_new_value_stays(
    kafka: KafkaHarness, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new value is unchanged, unreadable or of another type: an error, and no replay."""
    dead = Dead(kafka, tmp_path, capsys)
    dead.write(
        (IntType.serializer().serialize(7), {"topic": dead.inputs, "type": IntType.typename})
    )
    file = tmp_path / "text"
    file.write_text("seven")
    monkeypatch.delenv("VISUAL", raising=False)

    errors = []
    for editor in ("true", "false", "/no/editor"):
        monkeypatch.setenv("EDITOR", editor)
        errors.append(dead.command("edit", "0/0", status=1))
    errors += [dead.command("edit", "0/0", str(each), status=1) for each in (file, tmp_path / "no")]

    for text, expected in zip(
        errors,
        [
            "the value of dead letter 0/0 was not changed, so the letter is not replayed",
            "the editor 'false' has ended with status 1, so the letter is not replayed",
            "the editor '/no/editor' cannot be started: No such file or directory",
            "dead letter 0/0: the new value must be of type io.statefun.types/int: ",
            "/no cannot be read: No such file or directory",
        ],
        strict=True,
    ):
        assert expected in text
    assert dead.ids() == ["0/0"]


def test_a_letter_is_edited_in_any_locale() -> None:
    """The file that the editor gets is UTF-8, as the value is; what was not edited is not changed."""
    program = "from statefun.inspect.dlq_command import _edited; assert _edited('Jos\\u00e9') == 'Jos\\u00e9'.encode()"
    locale = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "EDITOR": "true"}

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **locale},
        capture_output=True,
        text=True,
        check=False,
    )

    assert not ended.stderr


def test_a_full_disk_keeps_a_letter_from_being_edited(tmp_path: Path) -> None:
    """The error names the file for the editor, and what to do; here, a limit of sizes stands for the disk."""
    program = """
import resource
from statefun.inspect.dlq_command import _edited
resource.setrlimit(resource.RLIMIT_FSIZE, (3, 3))
_edited("more than three")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
            "EDITOR": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert f"the file {tmp_path}/statefun-dlq-" in ended.stderr
    assert "which the editor 'true' is to open, cannot be written: File too large; set TMPDIR" in (
        ended.stderr
    )
