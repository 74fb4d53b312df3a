# SPDX-License-Identifier: Apache-2.0
"""Dead letters of a real broker in the admin API and on the live page: listed, shown, replayed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_api import Served, served
from browser import GRAVE, Tab, axe, browser
from confluent_kafka import Producer
from harness import KafkaHarness, wait

from statefun.inspect.validation import declared_module
from statefun.runtime.admin import letter_routes
from statefun.runtime.letters.dead_letters import DeadLetters

pytestmark = [pytest.mark.broker, pytest.mark.takes(minutes=0.8)]
PICTURES = os.environ.get("STATEFUN_PICTURES", "")


class Letters:
    """Letters in a topic, and the API of the application that has made them."""

    def __init__(self, kafka: KafkaHarness, folder: Path, *, replays: bool = True) -> None:
        self.kafka = kafka
        self.inputs, self.dead = kafka.topic("in"), kafka.topic("dead", 2)
        self.again = kafka.topic("again")
        self.module = kafka.module({self.inputs: ["test/greeter"]}, dead_letters=self.dead)
        if replays:
            self.module += f"  replayTopic: {self.again}\n"
        self.folder = folder
        self._producer = Producer({"bootstrap.servers": kafka.address})

    def write(self, number: int, *, partition: int = 0, **facts: str) -> None:
        """Write a letter about a record, which had the value ``number``."""
        known = {
            "time": f"{1_700_000_000_000 + number}",
            "target": f"test/greeter/{number}",
            "target-type": "test/greeter",
            "error-code": "SF301",
            "error-type": "ValueError",
            "error-message": f"function test/greeter failed: no {number}",
            "traceback": f"Traceback:\n  greet, line {number}",
            "topic": self.inputs,
            "partition": "0",
            "offset": f"{number}",
            **{name.replace("_", "-"): each for name, each in facts.items()},
        }
        headers: list[tuple[str, str | bytes | None]] = [
            ("own", b"header"),
            *((f"statefun-{n}", v.encode()) for n, v in known.items() if v),
        ]
        self._producer.produce(self.dead, f"{number}", f"{number}", partition, headers=headers)
        self._producer.flush(30)

    def ids(self) -> list[str]:
        """Return the ids of the letters that wait, as the command lists them."""
        file = self.folder / "module.yaml"
        file.write_text(self.module)
        return [each.id for each in DeadLetters(declared_module(None, [file])).read()]


@pytest.fixture
def letters(kafka: KafkaHarness, tmp_path: Path) -> Letters:
    """Write four letters, in two partitions."""
    found = Letters(kafka, tmp_path)
    found.write(1)
    found.write(2, partition=1, error_code="SF302")
    found.write(3, target="test/other/3", target_type="test/other")
    found.write(4, topic="", caller="test/other/1", secret="1")  # noqa: S106 - it is a mark
    return found


@pytest.fixture
def api(letters: Letters, tmp_path: Path) -> Iterator[Served]:
    """Serve the API of the application."""
    with served(tmp_path, declared=letters.module) as found:
        found.figures.is_up = True
        yield found


def test_letters_are_listed_newest_first(api: Served, letters: Letters) -> None:
    """Filters are those of the command; a list is short, and has no long parts."""
    status, content = api.ask("GET", "/dead-letters")
    assert status == 200
    assert (content["topic"], content["replay_topic"], content["total"]) == (
        letters.dead,
        letters.again,
        4,
    )
    assert [each["id"] for each in content["letters"]] == ["0/2", "0/1", "1/0", "0/0"]
    assert content["letters"][3] == {
        "id": "0/0",
        "time": "2023-11-14T22:13:20.001000Z",
        "target": "test/greeter/1",
        "target_type": "test/greeter",
        "error_code": "SF301",
        "error_type": "ValueError",
        "error_message": "function test/greeter failed: no 1",
        "topic": letters.inputs,
        "partition": 0,
        "offset": 1,
    }
    for query, ids in (
        ("function=test/greeter", ["0/2", "1/0", "0/0"]),
        ("function=test/greeter/1", ["0/0"]),
        ("error=SF302", ["1/0"]),
        ("error=ValueError&function=test/other", ["0/1"]),
        ("error=SF300", []),
        ("until=2023-11-14T22:13:20.003", ["1/0", "0/0"]),
        ("since=2023-11-14T22:13:20.004", ["0/2"]),
    ):
        found = api.ask("GET", f"/dead-letters?{query}")[1]["letters"]
        assert [each["id"] for each in found] == ids, query
    content = api.ask("GET", "/dead-letters?limit=2")[1]
    assert ([each["id"] for each in content["letters"]], content["total"]) == (["0/2", "0/1"], 4)
    for query in ("limit=0", "limit=1001", "limit=x", "since=yesterday"):
        assert api.ask("GET", f"/dead-letters?{query}")[0] == 400


def test_a_letter_is_shown_with_all_parts(api: Served) -> None:
    """Secret values are left out; an unknown id is answered with the nearest."""
    content = api.ask("GET", "/dead-letters/0/0")[1]
    assert content["traceback"] == "Traceback:\n  greet, line 1"
    assert (content["key"], content["value"], content["headers"]) == ("1", "1", [["own", "header"]])
    assert api.ask("GET", "/dead-letters/0/2")[1]["value"] is None
    for path in ("/dead-letters/1/1", "/dead-letters/7/0", "/dead-letters/x/y"):
        status, content = api.ask("GET", path)
        assert status == 404
        assert content["message"].startswith(f"no dead letter has the id {path[14:]}, or it was")
    assert "did you mean 1/0?" in api.ask("GET", "/dead-letters/1/1")[1]["message"]
    assert api.ask("POST", "/dead-letters/1/1/replay")[0] == 404


def test_a_letter_is_replayed_once(
    api: Served, letters: Letters, caplog: pytest.LogCaptureFixture
) -> None:
    """Into its topic or to its target, as the command does it; the audit log has it."""
    assert api.ask("POST", "/dead-letters/0/0/replay") == (200, {"replayed": 1, "problems": []})
    assert api.ask("POST", "/dead-letters/0/0/replay")[0] == 404
    assert api.ask("POST", "/dead-letters/0/1/replay?to-target=yes")[0] == 400
    assert api.ask("POST", "/dead-letters/0/1/replay?to-target=true")[0] == 200
    status, content = api.ask("POST", "/dead-letters/0/2/replay")
    assert status == 409
    assert "is a message from test/other/1, and not a record of a topic" in content["message"]
    assert [each.value for each in letters.kafka.receive(letters.inputs)] == ["1"]
    ((value, key),) = [(each.value, each.key) for each in letters.kafka.receive(letters.again)]
    assert (value, key) == ("3", "3")
    assert letters.ids() == ["1/0", "0/2"]
    assert "POST /dead-letters/0/0/replay: 200" in caplog.text


def test_letters_of_a_filter_are_replayed(api: Served, letters: Letters) -> None:
    """The oldest first, within a limit; without a filter, nothing is."""
    status, content = api.ask("POST", "/dead-letters/replay")
    assert status == 400
    assert content["message"].startswith("say which dead letters are replayed: function, error,")
    path = "/dead-letters/replay?error=SF301"
    assert api.ask("POST", f"{path}&limit=1")[1] == {"replayed": 1, "problems": []}
    content = api.ask("POST", path)[1]
    assert content["replayed"] == 1
    assert ["replay it with --to-target" in each for each in content["problems"]] == [True]
    assert api.ask("POST", f"{path}&to-target=true")[1] == {"replayed": 1, "problems": []}
    assert api.ask("POST", path)[1] == {"replayed": 0, "problems": []}
    assert [each.value for each in letters.kafka.receive(letters.inputs)] == ["1", "3"]
    assert letters.ids() == ["1/0"]


def test_only_the_newest_offsets_are_read(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many letters a topic has; a note about a letter of them is among them."""
    monkeypatch.setattr(letter_routes, "_NEWEST", 1)
    found = api.ask("GET", "/dead-letters")[1]["letters"]
    assert [each["id"] for each in found] == ["0/2", "1/0"]
    assert api.ask("GET", "/dead-letters/0/0")[0] == 200


def test_an_application_may_have_no_topic_for_them(kafka: KafkaHarness, tmp_path: Path) -> None:
    """Nor a topic for replays to targets."""
    with served(tmp_path) as api:
        status, content = api.ask("GET", "/dead-letters")
        assert (status, content["message"]) == (
            404,
            "no egress has a deadLetterTopic, so there are no dead letters",
        )
        assert api.ask("POST", "/dead-letters/0/0/replay")[0] == 404
    letters = Letters(kafka, tmp_path, replays=False)
    letters.write(1)
    with served(tmp_path, declared=letters.module) as api:
        assert api.ask("GET", "/dead-letters")[1]["replay_topic"] is None
        status, content = api.ask("POST", "/dead-letters/0/0/replay?to-target=true")
        assert status == 409
        assert "has no replayTopic" in content["message"]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Start one browser for all tests of the module."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("dark", [False, True])
def test_letters_are_replayed_on_the_page(
    tab: Tab, api: Served, letters: Letters, dark: bool
) -> None:
    """With the keyboard; all people can use it, and it says what has happened."""

    def text(id_: str) -> str:
        return str(tab.value(f"document.getElementById('{id_}').textContent"))

    def press_enter_at(selector: str) -> None:
        tab.value(f"document.querySelector('{selector}').focus()")
        for kind in ("keyDown", "keyUp"):
            tab.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key="Enter",
                code="Enter",
                windowsVirtualKeyCode=13,
                text="\r" if kind == "keyDown" else "",
            )

    tab.open(f"http://127.0.0.1:{api.port}/page/", dark=dark)
    wait(lambda: tab.value("document.querySelectorAll('#letters details').length") == 4)
    assert text("letters-note") == "4 in all."
    press_enter_at("#letters details:last-child summary")
    wait(lambda: "greet, line 1" in text("letters"))
    if PICTURES:
        tab.screenshot(Path(PICTURES) / f"letters-{'dark' if dark else 'light'}.png")
    tab.value(f"{axe()}; true")
    assert tab.value(GRAVE) == []
    press_enter_at("#letters details:last-child button")
    wait(lambda: text("letters-note") == "Replayed 1. 3 in all.")
    assert tab.value("document.activeElement.id") == "letters-note"
    tab.value("document.getElementById('letters-error').value = 'SF302'")
    press_enter_at("#letters-filter [type=submit]")
    wait(lambda: text("letters-note") == "1 in all.")
    press_enter_at("#replay-these")
    wait(lambda: text("letters-note") == "Replayed 1. None waits that is so.")
    assert [each.value for each in letters.kafka.receive(letters.inputs)] == ["1", "2"]
