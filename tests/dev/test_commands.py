# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness

from statefun import PlatformError
from statefun.cli import main
from statefun.dev.kafka_storage import forget
from statefun.dev.records import read_records, send_record

pytestmark = pytest.mark.broker

COMMAND = [sys.executable, "-m", "statefun.cli", "dev"]


def test_what_is_sent_is_read(kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """Key and value, a line each, and nothing that a terminal would obey."""
    topic, address = kafka.topic("users"), ["--address", kafka.address]

    assert main(["dev", "send", *address, topic, "Ada", "größer"]) == 0
    assert main(["dev", "send", *address, topic, "Alan", "\x1b[2J\n"]) == 0
    assert main(["dev", "read", *address, topic]) == 0

    assert capsys.readouterr().out == "Ada\tgrößer\nAlan\t\\x1b[2J\\n\n"


def test_a_topic_that_is_not_there_is_named(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """For both directions."""
    for command in (["send", "nowhere", "Ada", "a"], ["read", "nowhere"]):
        assert main(["dev", *command, "--address", kafka.address]) == 1
        assert "[SF501] statefun dev: topic nowhere does not exist" in capsys.readouterr().err


def test_topics_are_created_listed_and_described(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their partitions and numbers of records; a topic that exists is refused."""
    address, topic = ["--address", kafka.address], f"{kafka.topic('base')}.created"

    assert main(["dev", "topic", "create", *address, topic, "--partitions", "2"]) == 0
    assert main(["dev", "send", *address, topic, "Ada", "a"]) == 0
    assert main(["dev", "topic", "describe", *address, topic]) == 0
    created, head, *partitions = capsys.readouterr().out.splitlines()
    assert main(["dev", "topic", "list", *address]) == 0
    (listed,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(topic)]
    assert main(["dev", "topic", "create", *address, topic]) == 1

    assert created == f"created topic {topic} with 2 partitions"
    assert head.split("  ") == ["partition", "first offset", "next offset", "records"]
    assert sorted(line.split()[2:] for line in partitions) == [["0", "0"], ["1", "1"]]
    assert listed.split() == [topic, "2", "1"]
    assert f"statefun dev: topic {topic} at" in capsys.readouterr().err


def test_a_record_is_printed_with_all_that_it_has(
    kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """Place, time and headers, as columns or as JSON."""
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
    """Until Ctrl-C, which ends it quietly."""
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
    """``statefun dev kafka`` in a folder, until the block ends."""

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


def test_a_broker_keeps_its_records_until_it_is_to_forget_them(tmp_path: Path) -> None:
    """They are in the folder where it was started; a running broker's are not deleted."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    seen = []

    with Broker(tmp_path, port) as said:
        send_record(address, "users", "Ada", "a")
    with Broker(tmp_path, port):
        seen.append(read_records(address, "users"))
        with pytest.raises(PlatformError, match="a broker runs with the records in"):
            forget(tmp_path / ".statefun" / "kafka")
    with Broker(tmp_path, port, "--fresh"):
        seen.append(read_records(address, "users"))

    assert said == (
        f"Kafka is at localhost:{port}, and keeps its records in .statefun/kafka; Ctrl-C stops it\n"
    )
    assert seen == [[(b"Ada", b"a")], []]


def test_only_folders_of_brokers_are_forgotten(tmp_path: Path) -> None:
    """Whatever else the folder holds stays."""
    file = tmp_path / "data" / "mine"
    file.parent.mkdir()
    file.touch()

    forget(tmp_path)

    assert file.exists()
