# SPDX-License-Identifier: Apache-2.0
"""The dashboard, the alert rules and the documentation name the metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from statefun.engine.tallies import BOUNDS
from statefun.runtime.admin.metric_table import ALL_METRICS

ROOT = Path(__file__).resolve().parents[3]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "statefun.json"
_NAMES = re.compile(r"\b(?:statefun|messaging|jvm)_\w+")
_SERIES = {"histogram": ("_bucket", "_sum", "_count")}


def _expressions(path: Path) -> Iterator[str]:
    if path == ALERTS:
        for group in yaml.safe_load(path.read_text("utf-8"))["groups"]:
            yield from (rule["expr"] for rule in group["rules"])
        return
    dashboard: Any = json.loads(path.read_text("utf-8"))
    yield from (each["query"] for each in dashboard["templating"]["list"])
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("path", [ALERTS, DASHBOARD], ids=["alerts", "dashboard"])
def test_files_name_metrics_and_labels_that_exist(path: Path) -> None:
    """Whatever looks like one is one."""
    series = {
        f"{metric.name}{suffix}"
        for metric in ALL_METRICS
        for suffix in _SERIES.get(metric.kind, ("",))
    }
    labels = {label for metric in ALL_METRICS for label in metric.labels}
    found = {name for each in _expressions(path) for name in _NAMES.findall(each)}

    assert found - series - labels == set()
    assert found & series


def test_the_documentation_has_every_metric() -> None:
    """In one table, with types, labels and meanings."""
    page = (ROOT / "docs" / "admin.md").read_text("utf-8")
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.meaning} |"
        for each in ALL_METRICS
    ]
    listed = [
        line for line in page.splitlines() if line.startswith(("| `statefun_", "| `mess", "| `jvm"))
    ]

    assert listed == rows


def test_names_follow_the_conventions_of_prometheus() -> None:
    """A counter ends with ``_total``, and a time with its unit; the buckets are those of OpenTelemetry."""
    for metric in ALL_METRICS:
        assert re.fullmatch("[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.kind in {"counter", "gauge", "histogram"}
        assert "address" not in " ".join(metric.labels)
    assert sorted({each.name for each in ALL_METRICS}) == sorted(each.name for each in ALL_METRICS)
    assert BOUNDS[:3] == (0.005, 0.01, 0.025)
    assert BOUNDS[-1] == 10
