# SPDX-License-Identifier: Apache-2.0
"""Trees of commands, carried out by the test kit: their outcome is the one that is expected."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from command_trees import CANCELLED, LATE, Expected, Tree, trees
from hypothesis import given
from hypothesis import strategies as st
from languages.commanded import COMMANDS, COROUTINE, OUT, PLAIN, TOPIC, commanded

from statefun import FunctionError, KafkaEgress
from statefun.testing import InProcessApplication

A, B = "com.example/a", "com.example/b"
IDS = ["Ada", "ß/1", "x"]
FOREST = [
    Tree(
        A,
        "Ada",
        [
            {"do": "add", "by": 2, "name": "one"},
            {"do": "remember", "text": "this"},
            {"do": "recall", "name": "note"},
            {"do": "add", "by": 3, "name": "two"},
        ],
    )
]
RECORDS: list[dict[str, Any]] = [
    {"name": "one", "address": f"{A}/Ada", "total": 2},
    {"name": "note", "address": f"{A}/Ada", "note": "this"},
    {"name": "two", "address": f"{A}/Ada", "total": 5},
]


def application(plain: str, coroutine: str, seed: int = 0) -> InProcessApplication:
    """Return an application of both functions."""
    out = KafkaEgress.for_id(OUT).with_kafka_address("localhost:1").build()
    functions = commanded(plain, coroutine)
    return InProcessApplication(functions=functions, components=[out], seed=seed)


@given(
    seed=st.integers(0, 2**32),
    commands=st.integers(1, 300),
    ids=st.integers(1, len(IDS)),
    order=st.integers(0, 2**32),
)
def test_trees_have_one_outcome(seed: int, commands: int, ids: int, order: int) -> None:
    """In any order of messages, everything comes exactly once that was not cancelled."""
    forest = trees(seed, commands, [A, B], IDS[:ids])
    app = application(A, B, seed=order)
    for tree in forest:
        app.send(tree.function, tree.id, json.loads(tree.value), COMMANDS)
    app.drain()
    while app.next_timer is not None:
        app.advance(milliseconds=50)
    app.advance(milliseconds=2 * LATE)

    Expected.of(forest).check(record.text for record in app.egress(TOPIC))


def test_trees_are_repeatable() -> None:
    """The same seed gives the same trees, of about as many commands as were asked for."""
    forest = trees(7, 1000, [A, B], IDS)

    assert forest == trees(7, 1000, [A, B], IDS) != trees(8, 1000, [A, B], IDS)
    assert 1000 <= sum(tree.value.count(b'"do"') for tree in forest) <= 1100


def test_trees_have_all_commands() -> None:
    """For every address, with and without tokens, cancelled and not."""
    forest = trees(0, 3000, [A, B], IDS)
    text = json.dumps([tree.commands for tree in forest])
    expected = Expected.of(forest)

    counts = Counter(
        {kind: text.count(f'"do": "{kind}"') for kind in ("add", "send", "after", "cancel")}
    )
    assert min(counts.values()) > 100
    assert text.count(f'"name": "{CANCELLED}-') > 100
    assert not any(name.startswith(CANCELLED) for name in expected.added)
    assert {note is None for _, note in expected.noted.values()} == {False, True}
    assert set(expected.totals) == {f"{function}/{id_}" for function in (A, B) for id_ in IDS}


def test_what_is_right_passes() -> None:
    """Records in their order, as text or bytes."""
    values = [json.dumps(record) for record in RECORDS]

    assert len(Expected.of(FOREST)) == 3
    assert Expected.of(FOREST).totals == {f"{A}/Ada": 5}
    Expected.of(FOREST).check(values)
    Expected.of(FOREST).check(value.encode() for value in values)


@pytest.mark.parametrize(
    ("records", "text"),
    [
        (RECORDS[:2], "1 missing: two of com.example/a/Ada\n"),
        (RECORDS[:2], "1 wrong: com.example/a/Ada ends with 2 instead of 5"),
        ([*RECORDS, RECORDS[1]], "1 doubled: note, 2 times"),
        ([*RECORDS, {"name": "cancelled-1"}], "1 unexpected: {'name': 'cancelled-1'}"),
        ([{**RECORDS[0], "total": 3}, *RECORDS[1:]], "'total': 3} instead of "),
        ([{**RECORDS[0], "address": "n/a/b"}, *RECORDS[1:]], "'n/a/b', 'total': 2} instead of "),
        ([RECORDS[2], *RECORDS[:2]], "'total': 5} instead of "),
        ([RECORDS[0], {**RECORDS[1], "note": None}, RECORDS[2]], "'note': None} instead of "),
    ],
    ids=["missing", "last", "doubled", "unexpected", "total", "address", "order", "note"],
)
def test_what_is_wrong_is_told(records: list[dict[str, Any]], text: str) -> None:
    """By name and address, with what should be there."""
    with pytest.raises(AssertionError) as raised:
        Expected.of(FOREST).check(json.dumps(record) for record in records)

    assert text in str(raised.value)


def test_a_long_list_of_problems_is_cut() -> None:
    """It begins with the numbers."""
    with pytest.raises(AssertionError, match=r"^0 of \d+ records\n\d+ missing: .*; and \d+ more\n"):
        Expected.of(trees(0, 1000, [A], IDS)).check([])


@pytest.mark.parametrize("function", [PLAIN, COROUTINE])
def test_a_command_can_fail(function: str) -> None:
    """With nothing of its message done."""
    app = application(PLAIN, COROUTINE)
    commands = [{"do": "add", "by": 1, "name": "lost"}, {"do": "fail", "text": "on purpose"}]
    app.send(function, "Ada", commands, COMMANDS)
    with pytest.raises(FunctionError, match="on purpose"):
        app.drain()

    assert app.egress(TOPIC) == []
