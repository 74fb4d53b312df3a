# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness
from local_servers import free_port

from statefun import PlatformError
from statefun.cli import main
from statefun.dev.kafka import EmbeddedKafka
from statefun.dev.kafka_storage import forget
from statefun.dev.records import read_records, send_record

pytestmark = pytest.mark.broker

COMMAND = [sys.executable, "-m", "statefun.cli", "dev"]


def test_sent_records_are_read(kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """Each record is a line with key and value, without control characters."""
    topic, address = kafka.topic("users"), ["--address", kafka.address]

    assert main(["dev", "send", *address, topic, "Ada", "größer"]) == 0
    assert main(["dev", "send", *address, topic, "Alan", "\x1b[2J\n"]) == 0
    assert main(["dev", "read", *address, topic]) == 0

    assert capsys.readouterr().out == "Ada\tgrößer\nAlan\t\\x1b[2J\\n\n"


def test_a_tombstone_is_sent(kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no value, and an empty value is none."""
    topic, address = kafka.topic("users"), ["--address", kafka.address]

    assert main(["dev", "send", topic, "Ada", *address, "--tombstone"]) == 0
    assert main(["dev", "send", "--tombstone", *address, topic, "Alan"]) == 0
    assert main(["dev", "send", topic, "Grace", *address, ""]) == 0
    assert capsys.readouterr().out == ""

    records = read_records(kafka.address, topic)
    assert records == [(b"Ada", None), (b"Alan", None), (b"Grace", b"")]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["Ada", "a", "--tombstone"], "give a value or --tombstone, not both"),
        (["--tombstone", "Ada", ""], "give a value or --tombstone, not both"),
        (["Ada"], "the following arguments are required: value"),
        (["--tombstone"], "the following arguments are required: key"),
    ],
)
def test_a_record_has_a_value_or_is_a_tombstone(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anything else is a usage error, before a broker is asked."""
    with pytest.raises(SystemExit) as ended:
        main(["dev", "send", "users", *arguments])

    assert ended.value.code == 2
    assert error in capsys.readouterr().err


def test_the_address_of_the_environment_is_the_default(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Module files use the same variable; the option overrides it."""
    topic = kafka.topic("users")
    monkeypatch.setenv("KAFKA_ADDRESS", kafka.address)

    assert main(["dev", "send", topic, "Ada", "a"]) == 0
    assert main(["dev", "topic", "describe", topic]) == 0
    monkeypatch.setenv("KAFKA_ADDRESS", "localhost:1")
    assert main(["dev", "read", "--address", kafka.address, topic]) == 0

    assert capsys.readouterr().out.endswith("Ada\ta\n")


def test_a_missing_topic_is_named(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors name the topic and the command that creates it, at the broker that was used."""
    error = (
        f"[SF501] statefun dev: topic nowhere does not exist at {kafka.address}; create it first "
    )
    actions = (
        ["send", "nowhere", "Ada", "a"],
        ["read", "nowhere"],
        ["topic", "describe", "nowhere"],
    )
    monkeypatch.delenv("KAFKA_ADDRESS", raising=False)
    for action in actions:
        assert main(["dev", *action, "--address", kafka.address]) == 1
        creation = f"(statefun dev topic create nowhere --address {kafka.address})"
        assert error + creation in capsys.readouterr().err

    monkeypatch.setenv("KAFKA_ADDRESS", kafka.address)
    assert main(["dev", "read", "nowhere"]) == 1
    assert f"{error}(statefun dev topic create nowhere)" in capsys.readouterr().err


@pytest.mark.long(minutes=2.4)
def test_topics_are_created_listed_and_described(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables show partitions and numbers of records; creating an existing topic is an error."""
    address, topic = ["--address", kafka.address], f"{kafka.topic('base')}.created"

    assert main(["dev", "topic", "create", *address, topic, "--partitions", "2"]) == 0
    assert main(["dev", "send", *address, topic, "Ada", "a"]) == 0
    assert main(["dev", "topic", "describe", *address, topic]) == 0
    created, head, *partitions = capsys.readouterr().out.splitlines()
    assert main(["dev", "topic", "list", *address]) == 0
    (listed,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(topic)]
    assert main(["dev", "topic", "create", *address, topic]) == 1
    error = capsys.readouterr().err
    assert main(["dev", "topic", "list", *address, "--json"]) == 0
    topics = json.loads(capsys.readouterr().out)
    assert main(["dev", "topic", "describe", *address, "--json", topic]) == 0
    offsets = json.loads(capsys.readouterr().out)

    assert created == f"created topic {topic} with 2 partitions"
    assert head.split("  ") == ["partition", "first offset", "next offset", "records"]
    assert sorted(line.split()[2:] for line in partitions) == [["0", "0"], ["1", "1"]]
    assert listed.split() == [topic, "2", "1"]
    assert f"statefun dev: topic {topic} at" in error
    assert {"topic": topic, "partitions": 2, "records": 1} in topics
    assert sorted(each["next_offset"] for each in offsets) == [0, 1]
    assert [each["first_offset"] for each in offsets] == [0, 0]


def test_all_parts_of_a_record_are_printed(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partition, offset, time and headers are columns, or keys of JSON."""
    topic, address = kafka.topic("full"), ["--address", kafka.address]
    producer = Producer({"bootstrap.servers": kafka.address})
    headers: list[tuple[str, str | bytes | None]] = [("trace", b"7"), ("none", None)]
    producer.produce(topic, b"\xff", "Ada", headers=headers, timestamp=1_700_000_000_123)
    producer.flush(10)

    assert main(["dev", "read", *address, topic, "--offsets", "--headers"]) == 0
    assert main(["dev", "read", *address, topic, "--json"]) == 0

    line, text = capsys.readouterr().out.splitlines()
    assert line == "0/0\t2023-11-14T22:13:20.123Z\tAda\t\\xff\ttrace=7,none=-"
    assert json.loads(text) == {
        "partition": 0,
        "offset": 0,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "key": "Ada",
        "value": {"base64": "/w=="},
        "headers": [["trace", "7"], ["none", None]],
    }


def test_new_records_are_followed(kafka: KafkaHarness) -> None:
    """Ctrl-C ends the command without an error text."""
    topic = kafka.topic("followed")
    send_record(kafka.address, topic, "Ada", "before")
    command = [*COMMAND, "read", "--follow", "--address", kafka.address, topic]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "Ada\tbefore\n"
        send_record(kafka.address, topic, "Ada", "after")
        assert process.stdout.readline() == "Ada\tafter\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 130


class Broker:
    """Runs ``statefun dev kafka`` in a folder until the block ends."""

    def __init__(self, folder: Path, port: int, *arguments: str) -> None:
        command = [*COMMAND, "kafka", "--port", str(port), "--topic", "users", *arguments]
        self._process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> str:
        """Return what it says when it is ready."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.send_signal(signal.SIGINT)


def test_a_broker_keeps_its_records_until_a_fresh_start(tmp_path: Path) -> None:
    """A start with --fresh deletes the records; those of a running broker cannot be deleted."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    records = []

    with Broker(tmp_path, port) as printed:
        send_record(address, "users", "Ada", "a")
    with Broker(tmp_path, port):
        records.append(read_records(address, "users"))
        with pytest.raises(PlatformError, match="a broker uses the records in"):
            forget(tmp_path / ".statefun" / "kafka")
    with Broker(tmp_path, port, "--fresh"):
        records.append(read_records(address, "users"))

    assert printed == (
        f"Kafka is at localhost:{port}, and keeps its records in .statefun/kafka; stop it with "
        "Ctrl-C\n"
    )
    assert records == [[(b"Ada", b"a")], []]


def test_a_fresh_start_keeps_files_that_no_broker_has_written(tmp_path: Path) -> None:
    """``--data .`` is the folder of a project, which may have a folder ``data`` of its own."""
    port = free_port()
    with Broker(tmp_path, port, "--data", "."):
        send_record(f"127.0.0.1:{port}", "users", "Ada", "a")
    kept = [tmp_path / name for name in ("app.py", "data/users.csv", "data/visits-1/a.jsonl")]
    for file in kept:
        file.parent.mkdir(exist_ok=True)
        file.touch()

    forget(tmp_path)

    assert sorted(file for file in tmp_path.rglob("*") if file.is_file()) == sorted(kept)


def test_a_fresh_start_deletes_a_folder_that_only_a_broker_has_written(tmp_path: Path) -> None:
    """The broker was killed, and so was an earlier attempt, which has deleted a part of the files."""
    folder = tmp_path / "kafka"
    with EmbeddedKafka(data=folder) as kafka:
        kafka.create_topic("users")
        kafka.kill()
    for file in ("partition.metadata", f"{0:020}.log"):
        (folder / "data" / "users-0" / file).unlink(missing_ok=True)

    forget(folder)

    assert not folder.exists()


def test_only_folders_of_brokers_are_deleted(tmp_path: Path) -> None:
    """A folder without a broker's settings is not deleted."""
    file = tmp_path / "data" / "mine"
    file.parent.mkdir()
    file.touch()

    forget(tmp_path)

    assert file.exists()
