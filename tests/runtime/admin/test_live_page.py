# SPDX-License-Identifier: Apache-2.0
"""The live page in a real browser: empty, one function, failing, huge, dark, with a token, with the keyboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin_api import MODULE, TOKEN, Served, served
from browser import GRAVE, Tab, axe, browser
from harness import wait

from statefun.module.loader import load_module_files
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.reporting.figures import EgressFigures, PartitionFigures
from statefun.runtime.spark_internals.query_progress import BatchTimes

PICTURES = os.environ.get("STATEFUN_PICTURES", "")
"""The folder into which the tests write pictures of the page; empty: none."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Start one browser for all tests of the module."""
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    """Serve the API of an application whose query does not run."""
    with served(tmp_path) as found:
        found.figures.is_up = True
        yield found


def counts(
    name: str,
    number: int,
    messages: dict[str, int] | None = None,
    records: dict[str, int] | None = None,
) -> Outcome.FunctionCounts:
    """Return what a function has done."""
    return Outcome.FunctionCounts(
        typename=name,
        invocations=number,
        durations=[number, *[0] * 14],
        messages=messages or {},
        records=records or {},
    )


def show(tab: Tab, api: Served, name: str, *, dark: bool = False) -> None:
    """Open the page, and wait until it shows the application; check that all people can use it."""
    tab.open(f"http://127.0.0.1:{api.port}/page/", dark=dark)
    wait(lambda: tab.value("document.body?.dataset.shown === 'true'"))
    check_usable(tab, name)


def check_usable(tab: Tab, name: str) -> None:
    """Check that all people can use the page as it is now."""
    if PICTURES:
        tab.screenshot(Path(PICTURES) / f"{name}.png")
    tab.value(f"{axe()}; true")
    assert tab.value(GRAVE) == []


def nodes(tab: Tab) -> list[str]:
    """Return the names of the graph's nodes for screen readers."""
    labels = '[...document.querySelectorAll("#graph [role=button]")].map((g) => g.getAttribute("aria-label"))'
    return sorted(tab.value(labels))


def greet(api: Served, number: int = 40) -> None:
    """Let a function have greeted."""
    api.figures.staged(
        [Outcome(functions=[counts("test/greeter", number, records={"test/out": number})])]
    )
    api.figures.partitions = [PartitionFigures("test/in", "users", "0", "g", 100 + number, 7, 100)]
    api.figures.egresses = {"test/out": EgressFigures(number, 0, 0)}
    phases = {"addBatch": 0.08, "queryPlanning": 0.02, "walCommit": 0.01}
    for batch in range(len(api.figures.batches), len(api.figures.batches) + 40):
        api.figures.ended(BatchTimes(batch, 1e9 + batch, 0.11 + batch % 7 / 50, phases, 10))


def test_an_application_without_traffic_is_shown(tab: Tab, api: Served) -> None:
    """With its parts, and a sentence that nothing has flowed."""
    show(tab, api, "empty")
    assert tab.value("document.getElementById('state').textContent") == "running"
    assert nodes(tab) == [
        "egress test/out, 0/s",
        "function test/greeter, 0/s",
        "ingress test/in, 0/s",
    ]
    assert "None." in tab.value("document.getElementById('failures').textContent")


@pytest.mark.parametrize("dark", [False, True])
def test_what_flows_is_drawn(tab: Tab, api: Served, dark: bool) -> None:
    """From ingress to egress, also in dark colours; rates come with the next look."""
    greet(api)
    show(tab, api, "dark" if dark else "one", dark=dark)
    assert tab.value("document.querySelectorAll('#graph path').length") == 2
    assert tab.value("document.querySelectorAll('#batches rect').length") == 120
    assert "users" in tab.value("document.querySelector('#lag tbody').textContent")
    greet(api)
    wait(lambda: any(not label.endswith(" 0/s") for label in nodes(tab)))


def test_failures_are_red_and_grouped(tab: Tab, api: Served) -> None:
    """They have the text of the newest one; texts of functions are shown as they are."""
    greet(api)
    text = "[SF301] <img src=x onerror=document.title='hacked'>"
    example = Outcome.Example(kind="test/greeter ValueError", what="skipped", text=text, count=3)
    failed = Outcome.Failed(typename="test/greeter", code="SF301", count=3)
    api.figures.staged([Outcome(examples=[example], failed=[failed])])
    show(tab, api, "failing")
    assert "3 skipped: test/greeter ValueError" in tab.value(
        "document.getElementById('failures').textContent"
    )
    assert text in tab.value("document.getElementById('failures').textContent")
    assert tab.value("document.title") == "statefun"
    assert tab.value("document.querySelectorAll('#graph .failing').length") == 1


def test_warnings_are_below_their_lines(tab: Tab, tmp_path: Path) -> None:
    """In the text of the module file."""
    file = tmp_path / "module.yaml"
    file.write_text(MODULE.replace("id: test/out", "id: test/unused"))
    with served(tmp_path, declared=load_module_files([file]), module=file) as api:
        api.figures.is_up = True
        tab.open(f"http://127.0.0.1:{api.port}/page/")
        wait(lambda: tab.value("document.querySelectorAll('#module summary').length") == 1)
        assert tab.value("document.querySelector('#module summary').textContent") == (
            "module.yaml: 1 warning"
        )
        tab.value("document.querySelector('#module summary').click()")
        check_usable(tab, "module")
        before = "document.querySelector('#module strong').previousElementSibling.textContent"
        assert tab.value(before) == "kind: io.statefun.kafka.v1/egress\n"


def test_ten_thousand_edges_do_not_freeze_it(tab: Tab, api: Served) -> None:
    """The busiest are drawn, and the others counted; the page still answers."""
    names = [f"test/function-{number}" for number in range(100)]
    api.figures.staged(
        [
            Outcome(
                functions=[
                    counts(
                        name,
                        7,
                        messages={
                            other: (row * column) % 9973 for column, other in enumerate(names)
                        },
                    )
                    for row, name in enumerate(names)
                ]
            )
        ]
    )
    partitions = range(1000)
    api.figures.partitions = [
        PartitionFigures("test/in", "users", str(number), "g", number, number, 0)
        for number in partitions
    ]
    show(tab, api, "huge")
    assert "300 busiest of 10,001" in tab.value(
        "document.getElementById('topology-note').textContent"
    )
    assert tab.value("document.querySelectorAll('#graph path').length") == 300
    assert tab.value("document.querySelectorAll('#lag tbody tr').length") == 200


def test_a_part_is_chosen_and_paused_with_the_keyboard(tab: Tab, api: Served) -> None:
    """The focus stays on the node when the graph is drawn anew."""
    show(tab, api, "details")
    tab.value("document.querySelector('#graph .egress').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.ask(
            "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13
        )
    wait(lambda: "Pause test/out" in tab.value("document.getElementById('details').textContent"))
    greet(api)
    wait(lambda: tab.value("document.querySelectorAll('#graph path').length") == 2)
    assert tab.value("document.activeElement.getAttribute('data-key')") == "egress test/out"
    tab.value("document.querySelector('#details button').click()")
    wait(lambda: "test/out" in api.control.pauses.paused.egresses)
    wait(lambda: "Resume test/out" in tab.value("document.getElementById('details').textContent"))


def test_a_large_number_of_a_state_is_shown_as_it_is(
    tab: Tab, api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole number that a float of 64 bits cannot hold, such as an id of a snowflake generator, is not rounded."""
    number = 2**53 + 1
    report = {"values": {"order": {"typename": "io.statefun.types/long", "value": number}}}
    monkeypatch.setattr(AdminViews, "state", lambda *_: report)
    show(tab, api, "state")

    tab.value("document.getElementById('id').value = 'ada'; true")
    tab.value("document.getElementById('inspect').requestSubmit(); true")
    wait(lambda: tab.value("document.getElementById('address').textContent") != "")

    assert f'"value": {number}' in tab.value("document.getElementById('address').textContent")


def test_a_token_is_asked_for_and_kept(tab: Tab, tmp_path: Path) -> None:
    """A wrong one shows nothing; the address has none."""
    (tmp_path / "tokens").write_text(TOKEN)
    with served(tmp_path, admin_tokens=tmp_path / "tokens") as api:
        tab.open(f"http://127.0.0.1:{api.port}/page/")
        wait(lambda: tab.value("document.getElementById('login')?.hidden === false"))
        for token in ("wrong", TOKEN):
            assert tab.value("document.getElementById('content').hidden")
            tab.value(f"document.getElementById('token').value = '{token}'")
            tab.value("document.querySelector('#login button').click()")
        wait(lambda: not tab.value("document.getElementById('content').hidden"))
        assert TOKEN not in tab.value("location.href")
        tab.value("sessionStorage.clear()")
