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

from statefun.engine.clock import SystemClock
from statefun.module.loader import parse_module
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.settings import Settings
from statefun.runtime.telemetry import exports
from statefun.runtime.telemetry.exporting import exporting
from statefun.sdk.errors import ConfigurationError


@contextmanager
def exported(folder: Path, endpoint: str | None) -> Iterator[Figures]:
    """Export the metrics of an application whose query does not run; yield its counts."""
    settings = Settings.resolve({}, None, checkpoint=folder, otlp_endpoint=endpoint)
    definition = Definition(parse_module(MODULE), functions(), settings, SystemClock())
    control, figures = Control(), Figures()
    with (
        control.obeying(settings.checkpoint),
        exporting(definition, control, figures, lambda: "greeter"),
    ):
        yield figures


def test_metrics_come_again_and_again_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last export has the final counts."""
    monkeypatch.setattr(exports, "METRICS_SECONDS", 0.05)
    with receiving() as receiver:
        with exported(tmp_path, receiver.url) as figures:
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
        with exported(tmp_path, receiver.url):
            pass
        assert len(receiver.metrics) == 1


def test_a_collector_that_does_not_answer_does_not_hold_the_end_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is left alone, and the collector may answer it later."""
    monkeypatch.setattr(exports, "_END_SECONDS", 0.1)
    with receiving() as receiver:
        receiver.answering.clear()
        with exported(tmp_path, receiver.url):
            pass
        assert not receiver.metrics


def test_without_the_extra_one_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a code; the application has not begun."""
    monkeypatch.setitem(sys.modules, "statefun.runtime.telemetry.exports", None)

    with (
        pytest.raises(ConfigurationError, match=r"^\[SF100\] .*pip install 'statefun\[otel\]'$"),
        exported(tmp_path, "http://127.0.0.1:1"),
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
