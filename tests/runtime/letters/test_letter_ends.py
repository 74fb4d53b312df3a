# SPDX-License-Identifier: Apache-2.0
"""Replays of dead letters, some of which their cluster refuses."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import KafkaHarness

from statefun.cli import main
from statefun.module.loader import parse_module
from statefun.runtime.letters import dead_letters
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter
from statefun.runtime.letters.replay_routes import Replay, ReplayRoutes
from statefun.sdk.errors import KafkaError

pytestmark = [pytest.mark.broker, pytest.mark.takes(minutes=0.5)]


def write(kafka: KafkaHarness, dead: str, *letters: tuple[str, str | None, str]) -> None:
    """Write letters, each given as the topic, key and value of its record."""
    producer = Producer({"bootstrap.servers": kafka.address})
    for topic, key, value in letters:
        headers: list[tuple[str, str | bytes | None]] = [
            ("statefun-topic", topic.encode()),
            ("statefun-time", b"1700000000000"),
        ]
        producer.produce(dead, value, key, headers=headers)
    assert producer.flush(30) == 0


class Wrong(NamedTuple):
    """A record that a topic does not take."""

    config: dict[str, str]
    """The configuration of the topic."""
    key: str | None
    value: str
    reason: str
    """What the error says."""


LARGE = Wrong({"max.message.bytes": "2000"}, "key", "x" * 5000, "Message size too large")
KEYLESS = Wrong({"cleanup.policy": "compact"}, None, "a record", "failed to validate record")


@pytest.mark.parametrize("wrong", [LARGE, KEYLESS], ids=["large", "keyless"])
def test_a_letter_that_the_cluster_refuses_does_not_stop_the_others(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: Wrong
) -> None:
    """It stays, and the command says why; the others are replayed in their order, also into the same topic."""
    inputs, dead = kafka.topic("in"), kafka.topic("dead")
    strict = f"{inputs}-strict"
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(strict, 1, 1, config=wrong.config)])[strict].result(30)
    file = tmp_path / "module.yaml"
    file.write_text(kafka.module({inputs: ["t.fns/f"], strict: ["t.fns/f"]}, dead_letters=dead))
    fine = [(strict, f"{number}", f"{number}") for number in range(20)]
    write(kafka, dead, (inputs, "a", "one"), *fine[:9], (strict, wrong.key, wrong.value), *fine[9:])
    write(kafka, dead, (inputs, "a", "two"))
    replay = ["dlq", "replay", "--all", "--module", str(file)]

    assert main(replay) == 1
    printed = capsys.readouterr()
    assert main(["dlq", "list", "--json", "--module", str(file)]) == 0
    (left,) = capsys.readouterr().out.splitlines()
    assert main(replay) == 1

    assert printed.out == "replayed 22 dead letters into their topics\n"
    assert f"dead letter 0/10: the cluster {kafka.address} refuses its record" in printed.err
    assert wrong.reason in printed.err
    assert json.loads(left)["id"] == "0/10"
    assert [record.value for record in kafka.receive(inputs)] == ["one", "two"]
    assert [record.value for record in kafka.receive(strict)] == [text for *_, text in fine]


def test_a_command_that_another_one_fences_ends(
    kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No letter is replayed twice, and the error says what to do."""
    inputs, dead = kafka.topic("in"), kafka.topic("dead")
    letters = DeadLetters(parse_module(kafka.module({inputs: ["t.fns/f"]}, dead_letters=dead)))
    write(kafka, dead, (inputs, "a", "one"), (inputs, "a", "two"))
    first, second = (LetterEnds(letters) for _ in range(2))
    original, calls = ReplayRoutes.replay, count()

    def replay(routes: ReplayRoutes, letter: object, lacks: tuple[str, ...] = ()) -> Replay:
        if next(calls) == 0:
            assert second.replay(LetterFilter(), to_target=False).count == 2
        return original(routes, letter, lacks)  # type: ignore[arg-type] # it is a letter

    monkeypatch.setattr(ReplayRoutes, "replay", replay)
    with pytest.raises(KafkaError, match=r"refuses the transaction: .*; run the command again"):
        first.replay(LetterFilter(), to_target=False)

    assert [record.value for record in kafka.receive(inputs)] == ["one", "two"]


def test_nothing_is_replayed_while_a_note_may_be_hidden(
    kafka: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read a note after the beginning of an open transaction, and its letter would be replayed again."""
    monkeypatch.setattr(dead_letters, "TIMEOUT", timedelta(seconds=3))
    inputs, dead = kafka.topic("in"), kafka.topic("dead")
    letters = DeadLetters(parse_module(kafka.module({inputs: ["t.fns/f"]}, dead_letters=dead)))
    write(kafka, dead, (inputs, "a", "one"))
    application = Producer({"bootstrap.servers": kafka.address, "transactional.id": dead})
    application.init_transactions(30)
    application.begin_transaction()
    application.produce(dead, "a letter of a micro-batch")
    assert application.flush(30) == 0

    with pytest.raises(KafkaError, match="or a transaction open"):
        LetterEnds(letters).replay(LetterFilter(), to_target=False)
    listed = letters.read()
    application.abort_transaction(30)
    result = LetterEnds(letters).replay(LetterFilter(), to_target=False)

    assert [letter.id for letter in listed] == ["0/0"]
    assert result.count == 1
    assert [record.value for record in kafka.receive(inputs)] == ["one"]
