# SPDX-License-Identifier: Apache-2.0
"""Metrics of what is no longer there; Spark's metrics system is a stand-in."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statefun.engine.watermark import Partition
from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.reporting import metrics as metrics_module
from statefun.runtime.reporting.metrics import Metrics
from statefun.runtime.reporting.summary import Summary

MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/in
  address: localhost:9092
  startupPosition: {type: earliest}
  topics:
    - {topicPattern: "t-.*", valueType: io.statefun.types/string, targets: [t.fns/a]}
"""


class Registry(dict[str, int]):
    """The metrics that are set, by name."""

    def set(self, name: str, value: int) -> None:
        """Set a gauge."""
        self[name] = value

    def count(self, name: str, value: int) -> None:
        """Set a counter."""
        self[name] = value

    def remove(self, name: str) -> None:
        """Remove a metric."""
        del self[name]


def report(*topics: str) -> Any:
    """Return Spark's report of a micro-batch that has read some topics."""
    offsets = json.dumps({topic: {"0": 5} for topic in topics})
    source = SimpleNamespace(startOffset=offsets, endOffset=offsets, latestOffset=offsets)
    return SimpleNamespace(sources=[source])


@pytest.mark.parametrize("turn", [timedelta(0), timedelta(minutes=1)])
def test_metrics_of_partitions_that_are_gone_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: timedelta
) -> None:
    """A round of updates removes them, whether it takes one update or many; all others stay."""
    registry = Registry()
    monkeypatch.setattr(metrics_module, "MetricsSource", lambda _name: registry)
    monkeypatch.setattr(metrics_module, "_TURN", turn)
    ingresses = parse_module(MODULE).ingresses
    seen = []
    with closing(GroupOffsets(ingresses, [None], CommitLog(Folder.at(tmp_path)))) as groups:
        metrics = Metrics(ingresses, [], [None], groups, Summary())
        metrics.open()
        for topics in (["t-1", "t-2"], ["t-2"], []):
            metrics.event_times = {Partition("t/in", topic, 0): 7 for topic in topics}
            for _ in range(20):
                metrics.update(report(*topics))
            seen.append({*registry})

    gauges = {
        topic: {
            f"ingress.t/in.topic.{topic}.partition.0.{name}"
            for name in ("currentOffset", "lag", "eventTime")
        }
        for topic in ("t-1", "t-2")
    }
    assert seen[1] == seen[0] - gauges["t-1"]
    assert seen[2] == seen[1] - gauges["t-2"]
    assert len(seen[0]) - len(seen[2]) == 6
    assert {"invocations", "ingress.t/in.commitsFailed"} <= seen[2]
