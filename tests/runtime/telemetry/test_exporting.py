# SPDX-License-Identifier: Apache-2.0
"""Metrics of an application, from its start to its end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from admin_api import MODULE, functions
from otlp_receiver import attributes, receiving
from patience import SECONDS

from statefun.engine.clock import SystemClock
from statefun.engine.span_details import SpanDetails
from statefun.engine.trace_journal import INVOCATION, NOBODY, TraceJournal
from statefun.module.loader import parse_module
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.rows.trace_entries import details_stream, trace_stream
from statefun.runtime.settings import Settings
from statefun.runtime.telemetry import exports, staged_spans
from statefun.runtime.telemetry.exporting import OnStaged, exporting
from statefun.sdk.errors import ConfigurationError


@pytest.fixture(autouse=True)
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the end of an application wait for its last export, however slow the machine is."""
    monkeypatch.setattr(exports, "_END_SECONDS", SECONDS)


@contextmanager
def exporter(folder: Path, endpoint: str | None) -> Iterator[tuple[Figures, OnStaged]]:
    """Export what an application does whose query does not run; yield its counts, and what gets micro-batches."""
    settings = Settings.resolve(
        {}, None, checkpoint=folder, otlp_endpoint=endpoint, trace_journal="1m"
    )
    definition = Definition(parse_module(MODULE), functions(), settings, SystemClock())
    control, figures = Control(), Figures()
    with (
        control.obeying(settings.checkpoint),
        exporting(definition, control, figures, lambda: "greeter") as on_staged,
    ):
        yield figures, on_staged


def outcome(count: int) -> Outcome:
    """Return what a task reports that has handled so many messages."""
    details = SpanDetails()
    journal = TraceJournal(details=details)
    for number in range(1, count + 1):
        journal.kinds.append(INVOCATION)
        journal.spans.append(f"{number:016x}")
        journal.parents.append(NOBODY)
        journal.keys.append(b"Ada\0t/f")
        journal.texts.append("")
        details.add(f"{number:032x}")
    return Outcome(traces=trace_stream(journal), span_details=details_stream(details))


def commit(folder: Path, batch: int) -> None:
    """Commit a micro-batch in the eyes of whoever lists the commits."""
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "commits" / str(batch)).touch()


def test_spans_are_sent_once_their_micro_batch_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are not committed at the end do not count."""
    monkeypatch.setattr(exports, "SPANS_SECONDS", 0.02)
    monkeypatch.setattr(exports, "METRICS_SECONDS", 0.02)
    with receiving() as receiver:
        with exporter(tmp_path, receiver.url) as (_, on_staged):
            on_staged(3, [outcome(5)])
            on_staged(4, [outcome(1)])
            looks = len(receiver.metrics)
            while len(receiver.metrics) < looks + 3:
                time.sleep(0.01)
            assert not receiver.traces
            commit(tmp_path, 3)
            while not receiver.traces:
                time.sleep(0.01)
        assert len(receiver.spans()) == 5


def test_many_spans_are_sent_in_several_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end, too."""
    monkeypatch.setattr(exports, "_MOST_SPANS", 2)
    with receiving() as receiver:
        with exporter(tmp_path, receiver.url) as (_, on_staged):
            on_staged(0, [outcome(3), outcome(2)])
            commit(tmp_path, 0)
        assert sorted(
            len(each.resource_spans[0].scope_spans[0].spans) for each in receiver.traces
        ) == [1, 2, 2]


def test_spans_that_a_collector_refuses_are_dropped_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Further requests for the same micro-batches are not tried, and later ones are."""
    monkeypatch.setattr(exports, "SPANS_SECONDS", 0.02)
    monkeypatch.setattr(exports, "_MOST_SPANS", 1)
    with receiving() as receiver:
        receiver.status = 400
        with exporter(tmp_path, receiver.url) as (_, on_staged):
            on_staged(0, [outcome(9)])
            commit(tmp_path, 0)
            while receiver.seen < 1:
                time.sleep(0.01)
            on_staged(1, [outcome(9)])
            commit(tmp_path, 1)
            while receiver.seen < 2:
                time.sleep(0.01)
            receiver.status = 200
            on_staged(2, [outcome(1)])
            commit(tmp_path, 2)
        assert len(receiver.spans()) == 1

    assert caplog.text.count("traces to") == 1 + caplog.text.count("can be sent again")


def test_spans_that_come_too_fast_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what helps; the newest ones are sent."""
    monkeypatch.setattr(staged_spans, "MOST_STAGED_BYTES", 1)
    with receiving() as receiver, exporter(tmp_path, receiver.url) as (_, on_staged):
        on_staged(0, [outcome(1)])
        on_staged(1, [outcome(1)])

    assert "a smaller trace-share makes fewer" in caplog.text
    assert not receiver.traces


def test_metrics_come_again_and_again_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last export has the final counts."""
    monkeypatch.setattr(exports, "METRICS_SECONDS", 0.05)
    with receiving() as receiver:
        with exporter(tmp_path, receiver.url) as (figures, _):
            while len(receiver.metrics) < 2:
                time.sleep(0.01)
            figures.summary.batches = 7
        (point,) = receiver.newest()["statefun.batches"].sum.data_points
        resource = receiver.metrics[0].resource_metrics[0].resource

    assert point.as_int == 7
    assert point.start_time_unix_nano == int(figures.began * 1e9)
    assert attributes(resource.attributes)["service.name"] == "greeter"


def test_a_short_application_exports_once(tmp_path: Path) -> None:
    """At its end."""
    with receiving() as receiver:
        with exporter(tmp_path, receiver.url):
            pass
        assert len(receiver.metrics) == 1


def test_a_collector_that_does_not_answer_does_not_hold_the_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is left alone, and the collector may answer it later."""
    monkeypatch.setattr(exports, "_END_SECONDS", 0.1)
    with receiving() as receiver:
        receiver.answering.clear()
        with exporter(tmp_path, receiver.url):
            pass
        assert not receiver.metrics


def test_without_the_extra_one_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a code; the application has not begun."""
    monkeypatch.setitem(sys.modules, "statefun.runtime.telemetry.exports", None)

    with (
        pytest.raises(ConfigurationError, match=r"^\[SF100\] .*pip install 'statefun\[otel\]'$"),
        exporter(tmp_path, "http://127.0.0.1:1"),
    ):
        raise AssertionError


def test_nothing_of_opentelemetry_is_imported_without_the_setting() -> None:
    """Neither by a driver nor by a worker."""
    program = """
import sys
import statefun.runtime.application, statefun.runtime.dispatch.operator
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
