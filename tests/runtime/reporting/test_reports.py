# SPDX-License-Identifier: Apache-2.0
"""The reports of a run, whose parts are real where they need no Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_checkpoint import small_checkpoint

from statefun.engine.clock import SystemClock
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.reporting.reports import Reports
from statefun.runtime.reporting.summary import Summary
from statefun.sdk.errors import CheckpointError


def test_all_parts_are_closed_if_the_checkpoint_cannot_be_read(tmp_path: Path) -> None:
    """Else their threads and connections would stay."""
    checkpoint, closed = small_checkpoint(tmp_path), []
    definition = SimpleNamespace(
        settings=SimpleNamespace(checkpoint=checkpoint),
        line=None,
        module=SimpleNamespace(event_times=["t/in"]),
        clock=SystemClock(),
    )
    prepared = SimpleNamespace(
        ingresses=[],
        connectors=[],
        starts=[],
        bounds=SimpleNamespace(stops=[]),
        topics=SimpleNamespace(close=lambda: closed.append("topics")),
    )
    publisher = SimpleNamespace(group_offsets=SimpleNamespace(commits=[]), waiting=dict)
    figures = Figures()
    given = cast("tuple[Any, Any, Any]", (definition, prepared, publisher))
    reports = Reports(*given, Summary(), figures, None, cast("Any", None))
    figures.is_up = True
    checkpoint.child("offsets").write("0", b"v1\n{}\n[]")

    with pytest.raises(CheckpointError):
        reports.close()

    assert closed == ["topics"]
    assert not figures.is_up
