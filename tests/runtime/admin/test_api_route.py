# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from admin_api import MODULE, served

DEAD = f"{MODULE}  deadLetterTopic: dead\n"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            "funtion=test/a&since=12h",
            "/dead-letters/replay takes no 'funtion' in its query; did you mean function?",
        ),
        ("function=&since=12h", "function has no value: give it one, or leave it out"),
        ("since=12h&since=1h", "since occurs twice: give it once"),
    ],
)
def test_a_filter_that_is_not_understood_replays_nothing(
    tmp_path: Path, query: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped or empty condition that is left out would let letters of all functions be replayed."""
    filters = []

    def stream(_: object, filter_: object, *__: object) -> list[object]:
        filters.append(filter_)
        return []

    monkeypatch.setattr("statefun.runtime.letters.dead_letters.DeadLetters.stream", stream)
    with served(tmp_path, declared=DEAD) as api:
        answer = api.ask("POST", f"/dead-letters/replay?{query}")

    assert answer == (400, {"error_code": 400, "message": text})
    assert not filters


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics"])
def test_monitoring_systems_may_send_any_query(tmp_path: Path, path: str) -> None:
    """Names that are not known and values of empty templates change nothing."""
    with served(tmp_path) as api:
        expected = api.ask("GET", path)[0]
        for query in ("format=prometheus", "patience=", "patience=&job=a&job=b"):
            assert api.ask("GET", f"{path}?{query}")[0] == expected
        expected = 400 if path.startswith("/health") else 200
        assert api.ask("GET", f"{path}?patience=long")[0] == expected


def test_an_empty_part_of_a_query_is_no_name(tmp_path: Path) -> None:
    """The live page sends ?&limit=100 if no filter is given; a request that takes no query says so."""
    with served(tmp_path) as api:
        assert api.ask("GET", "/topology?&limit=3")[0] == 200
        assert api.ask("GET", "/timers?")[0] == 200
        status, content = api.ask("PUT", "/pause?for=1h")
        document = api.ask("GET", "/openapi.json")[1]

    assert (status, content["message"]) == (
        400,
        "/pause takes no 'for' in its query, as it takes none",
    )
    assert all(
        "400" in operation["responses"]
        for operations in document["paths"].values()
        for operation in operations.values()
    )
