# SPDX-License-Identifier: Apache-2.0
"""Traces in the admin API and on the live page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_api import Served, served
from browser import GRAVE, Tab, axe, browser
from harness import wait

from statefun.engine.address_keys import address_key
from statefun.engine.trace_journal import FAILURE, INVOCATION, NOBODY, RECORD, TraceJournal
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.trace_log import TraceLog, trace_entries
from statefun.runtime.rows.trace_entries import trace_stream
from statefun.sdk.address import Address

PICTURES = os.environ.get("STATEFUN_PICTURES", "")
ADA, ALAN = Address("test/greeter", "Ada"), Address("test/greeter", "Alan/<b>")
FIRST, SECOND = f"{1:016x}", f"{2:016x}"
PROBLEM = "ValueError: <img src=x onerror=document.title='hacked'>"


def note(folder: Folder) -> None:
    """Note that a record has called Ada, who has sent a record and has called Alan, who has failed."""
    log = TraceLog(folder, 10**6)
    for batch, entries in enumerate(
        [
            [
                (INVOCATION, FIRST, NOBODY, address_key(ADA), "users/0/7"),
                (RECORD, NOBODY, FIRST, b"Ada", "greetings"),
            ],
            [
                (INVOCATION, SECOND, FIRST, address_key(ALAN), ""),
                (FAILURE, NOBODY, SECOND, b"", PROBLEM),
            ],
        ]
    ):
        journal = TraceJournal()
        for kind, span, parent, key, text in entries:
            journal.kinds.append(kind)
            journal.spans.append(span)
            journal.parents.append(parent)
            journal.keys.append(key)
            journal.texts.append(text)
        log.add(batch, trace_entries([Outcome(traces=trace_stream(journal))], 1_700_000_000_000))
        folder.child("offsets").write(f"{batch}", b'v1\n{}\n-\n{"batch":-1,"tick":-1}')
        folder.child("commits").write(f"{batch}", b"v1\n{}")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    """Serve the API of an application that has noted a trace."""
    with served(tmp_path) as found:
        found.figures.is_up = True
        note(found.settings.checkpoint)
        yield found


def test_a_record_and_an_address_have_the_same_trace(api: Served) -> None:
    """Only what was asked for is another."""
    status, of_record = api.ask("GET", "/traces/records/users/0/7")
    assert status == 200
    assert of_record == {
        "asked": [FIRST],
        "left_out": 0,
        "is_cut": False,
        "invocations": [
            {
                "id": FIRST,
                "address": "test/greeter/Ada",
                "batch": 0,
                "time": "2023-11-14T22:13:20+00:00",
                "causes": [],
                "records_in": ["users/0/7"],
                "failures": [],
                "records_out": [{"topic": "greetings", "key": "Ada"}],
            },
            {
                "id": SECOND,
                "address": "test/greeter/Alan/<b>",
                "batch": 1,
                "time": "2023-11-14T22:13:20+00:00",
                "causes": [FIRST],
                "records_in": [],
                "failures": [PROBLEM],
                "records_out": [],
            },
        ],
    }
    status, of_address = api.ask("GET", "/traces/addresses/test/greeter/Alan%2F%3Cb%3E")
    assert (status, of_address) == (200, {**of_record, "asked": [SECOND]})


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("addresses/test/greeter/Bob", 404, "has no trace of test/greeter/Bob"),
        ("addresses/test/greeter/Ada?until=2020-01-01", 404, "has no trace of test/greeter/Ada"),
        ("addresses/test/greeter/Ada?until=soon", 400, "until"),
        ("records/users/0/x", 404, "no record of the journal is users/0/x"),
        ("records/%2Fdata%2Fa.csv/0/1", 404, "no record of the journal is /data/a.csv/0/1"),
    ],
)
def test_what_is_not_there_is_refused(api: Served, path: str, status: int, problem: str) -> None:
    """One sentence says why."""
    found, content = api.ask("GET", f"/traces/{path}")

    assert found == status
    assert problem in content["message"]


def test_an_application_may_have_no_journal(tmp_path: Path) -> None:
    """The sentence says how to get one; no cluster is asked."""
    with served(tmp_path) as api:
        status, content = api.ask("GET", "/traces/records/users/0/7")

    assert status == 404
    assert "spark.statefun.trace-journal" in content["message"]


def test_the_page_draws_a_tree(api: Served, tmp_path: Path) -> None:
    """Texts of functions are shown as they are; what is not there has its sentence."""
    with browser(tmp_path / "browser") as tab:
        tab.open(f"http://127.0.0.1:{api.port}/page/")
        wait(lambda: tab.value("document.body?.dataset.shown === 'true'"))

        ask(tab, "test/greeter/Alan/<b>")
        wait(lambda: tab.value("document.querySelectorAll('#trace li').length") == 4)

        first = "document.querySelector('#trace > ul > li')"
        assert tab.value(f"{first}.textContent").startswith("users/0/7 → test/greeter/Ada batch 0")
        inner = f"[...{first}.querySelectorAll(':scope > ul > li')].map((each) => each.textContent)"
        record, alan = tab.value(inner)
        assert record == "record to greetings, key Ada"
        assert alan.startswith("test/greeter/Alan/<b> batch 1")
        assert alan.endswith(f"failed: {PROBLEM}")
        assert tab.value("document.querySelector('#trace .asked').textContent") == str(ALAN)
        assert tab.value("document.title") == "statefun"
        if PICTURES:
            tab.screenshot(Path(PICTURES) / "trace.png")
        tab.value(f"{axe()}; true")
        assert tab.value(GRAVE) == []

        ask(tab, "test/greeter/Bob")
        note_ = "document.getElementById('trace-note').textContent"
        wait(lambda: "has no trace of test/greeter/Bob" in tab.value(note_))
        assert tab.value("document.getElementById('trace').hidden")


def ask(tab: Tab, what: str) -> None:
    """Ask for a trace on the page."""
    tab.value(f"document.getElementById('trace-what').value = '{what}'")
    tab.value("document.querySelector('#trace-form button').click()")
