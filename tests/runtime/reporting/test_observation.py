# SPDX-License-Identifier: Apache-2.0
"""The counts of read records across the runs of a process; Spark's reports are stand-ins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_checkpoint import small_checkpoint

from statefun.module.loader import parse_module
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.reporting import observation as observation_module
from statefun.runtime.reporting.figures import Figures
from statefun.runtime.reporting.observation import Observation
from statefun.runtime.reporting.summary import Summary

MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/in
  address: localhost:9092
  consumerGroupId: g
  onDataLoss: {on_data_loss}
  topics:
    - {{topic: users, valueType: io.statefun.types/string, targets: [t.fns/a]}}
"""


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no JVM for the size of its heap."""
    monkeypatch.setattr(observation_module, "heap", lambda: (0, 0))


def observation(
    figures: Figures, checkpoint: Path, *connectors: str, on_data_loss: str = "fail"
) -> Observation:
    """Return what observes one run, which reads the ingresses of connectors, or else a topic from its next record on."""
    module = parse_module(MODULE.format(on_data_loss=on_data_loss))
    prepared = SimpleNamespace(
        ingresses=[] if connectors else module.ingresses,
        connectors=[SimpleNamespace(id=each) for each in connectors],
        starts=[] if connectors else ["latest"],
        bounds=SimpleNamespace(stops=[] if connectors else [None]),
    )
    publisher = SimpleNamespace(waiting=dict)
    log = CommitLog(small_checkpoint(checkpoint))
    return Observation(figures, cast("Any", prepared), cast("Any", publisher), log, Summary())


def progress(start: str | None, end: str, rows: int) -> Any:
    """Return Spark's report of a micro-batch that has read some rows."""
    source = SimpleNamespace(startOffset=start, endOffset=end, latestOffset=end, numInputRows=rows)
    return SimpleNamespace(sources=[source], durationMs={})


def records(figures: Figures) -> int:
    """Return how many records of topics the process has read."""
    return sum(each.read - each.first for each in figures.partitions)


@pytest.mark.parametrize("on_data_loss", ["fail", "go-on"])
def test_records_of_a_new_partition_count(tmp_path: Path, on_data_loss: str) -> None:
    """A partition that was added is read from its first record on; its first micro-batch counts, too."""
    figures = Figures()
    observed = observation(figures, tmp_path, on_data_loss=on_data_loss)

    observed.begin([progress('{"users":{"0":10}}', '{"users":{"0":15}}', 5)])
    observed.look(progress('{"users":{"0":15}}', '{"users":{"0":20,"1":300}}', 305))

    assert records(figures) == 310


@pytest.mark.parametrize("on_data_loss", ["fail", "go-on"])
def test_records_of_a_new_partition_count_whenever_a_look_is(
    tmp_path: Path, on_data_loss: str
) -> None:
    """Two micro-batches may end between two looks; the first of them begins with the partition's first record."""
    figures = Figures()
    observed = observation(figures, tmp_path, on_data_loss=on_data_loss)
    history = [
        progress('{"users":{"0":10}}', '{"users":{"0":15}}', 5),
        progress('{"users":{"0":15}}', '{"users":{"0":20,"1":300}}', 305),
        progress('{"users":{"0":20,"1":300}}', '{"users":{"0":25,"1":310}}', 15),
    ]
    asked = []

    def recent() -> list[Any]:
        asked.append(1)
        return history

    observed.begin(history[:1])
    for _ in range(2):
        observed.look(history[0], recent)
        assert not asked
    for _ in range(2):
        observed.look(history[2], recent)

    assert records(figures) == 325
    assert len(asked) == 1


@pytest.mark.parametrize(("on_data_loss", "counted"), [("fail", 310), ("go-on", 10)])
def test_records_of_a_partition_that_began_before_do_not_count(
    tmp_path: Path, on_data_loss: str, counted: int
) -> None:
    """Its first records may be gone, or some may be marks of transactions; without the latter, Spark ends the query."""
    figures = Figures()
    observed = observation(figures, tmp_path, on_data_loss=on_data_loss)

    observed.begin([progress('{"users":{"0":10}}', '{"users":{"0":15}}', 5)])
    observed.look(progress('{"users":{"0":15}}', '{"users":{"0":20,"1":300}}', 105))

    assert records(figures) == counted


def test_a_partition_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """Topics that match a pattern may come and go; a partition that comes back counts from there on."""
    figures = Figures()
    observed = observation(figures, tmp_path, on_data_loss="go-on")
    asked = []

    def recent() -> list[Any]:
        asked.append(1)
        return []

    both, one = '{"users":{"0":15},"old":{"0":7}}', '{"users":{"0":20}}'
    observed.begin([progress(None, both, 22)])
    for start, end in ((both, both), (both, one)):
        observed.look(progress(start, end, 5), recent)
        assert figures.knows("t/in", "old", "0"), (
            "it is in the report, so Spark's history would be read"
        )
    observed.look(progress(one, one, 0), recent)

    assert figures.knows("t/in", "users", "0")
    assert not figures.knows("t/in", "old", "0")
    assert not asked


@pytest.mark.parametrize("end", [None, '{"users":{"0":20}}'])
def test_where_an_ingress_begins_is_known_until_it_is_read(tmp_path: Path, end: str | None) -> None:
    """Its first report has no start; what is read since the run has decided on the start counts."""
    figures = Figures()
    observed = observation(figures, tmp_path)
    figures.first_offset("t/in", "users", "0", 12)

    observed.look(progress(None, end or "null", 0))

    assert figures.knows("t/in", "users", "0")
    assert records(figures) == (8 if end else 0)


@pytest.mark.parametrize(("rows", "counted"), [(20, 20), (5, 0)])
def test_a_first_micro_batch_counts_if_it_begins_with_the_first_record(
    tmp_path: Path, rows: int, counted: int
) -> None:
    """Spark does not say where the first micro-batch of a fresh checkpoint began."""
    figures = Figures()
    observed = observation(figures, tmp_path)

    observed.look(progress(None, '{"users":{"0":20}}', rows))

    assert records(figures) == counted


def test_all_records_of_a_connector_count(tmp_path: Path) -> None:
    """There may be several micro-batches before the first look of a run, and the newest report may be of an idle moment."""
    figures = Figures()
    observed = observation(figures, tmp_path, "t/files")
    history = [
        progress(None, '{"records": 500}', 500),
        progress('{"records": 500}', '{"records": 900}', 400),
        progress('{"records": 900}', '{"records": 900}', 0),
    ]

    observed.begin(history)
    observed.look(history[-1])

    assert figures.connectors == {"t/files": 900}


def test_records_of_a_connector_count_across_runs(tmp_path: Path) -> None:
    """Also those of micro-batches that were committed while a run ended, after the last look at it."""
    figures = Figures()
    first = observation(figures, tmp_path, "t/files")
    first.begin([progress('{"records": 100}', '{"records": 500}', 400)])
    second = observation(figures, tmp_path, "t/files")
    newest = progress('{"records": 900}', '{"records": 950}', 50)

    second.begin([newest])
    second.look(newest)

    assert figures.connectors == {"t/files": 850}
