# SPDX-License-Identifier: Apache-2.0
"""The gauges of a running application in Spark's metrics system."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import KafkaHarness, metrics, wait
from harness import running as running_application

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.release.group_offsets import GroupOffsets
from statefun.runtime.reporting.metrics import Metrics
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import open_session
from statefun.runtime.spark_internals.metrics_system import MetricsSource

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@contextmanager
def running(module: str, functions: StatefulFunctions, checkpoint: Path) -> Iterator[None]:
    """Run an application, in small batches, until it is no longer needed."""
    arguments: dict[str, object] = {"checkpoint": checkpoint, "records_per_batch": 4}
    settings = Settings.resolve({}, None, **arguments)
    application = Application(parse_module(module), functions, settings)
    with running_application(application):
        yield


def test_offsets_and_lags_are_metrics_of_partitions(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Next to the counts of the run; all are removed when it ends."""
    users, out = kafka.topic("users", 2), kafka.topic("out")
    spark = open_session(debug=False, state_partitions=2)
    functions = StatefulFunctions()

    @functions.bind("test.fns/echo")
    def echo(ctx: Context, message: Message) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic=out, value=message.raw_value()))

    kafka.send(users, [("Ada", "a")] * 10, partition=0)
    with running(kafka.module({users: ["test.fns/echo"]}), functions, checkpoint):
        wait(lambda: metrics(spark).get("egress_records") == 10)
        kafka.send(users, [("Ada", "a")] * 3, partition=1)
        partition = f"ingress.test/in.topic.{users}.partition"
        expected = {
            f"{partition}.0.currentOffset": 10,
            f"{partition}.0.committedOffset": 10,
            f"{partition}.0.lag": 0,
            f"{partition}.1.currentOffset": 3,
            f"{partition}.1.committedOffset": 3,
            f"{partition}.1.lag": 0,
            "ingress.test/in.commitsFailed": 0,
            "invocations": 13,
            "egress_records": 13,
            "skipped": 0,
            "dead_letters": 0,
            "refused": 0,
            "retries": 0,
            "postponed": 0,
            "endpoints_down": 0,
            "backlog": 0,
            "calls_under_way": 0,
            "passed_by": 0,
            "future_records": 0,
            "restarts": 0,
        }
        wait(lambda: expected.items() <= metrics(spark).items())
        found = metrics(spark)
        assert found.keys() == {*expected, "batches", "ingress.test/in.commitsSucceeded"}
        assert found["batches"] == found["ingress.test/in.commitsSucceeded"] >= 2
    assert metrics(spark) == {}


def test_a_lag_grows_while_a_function_works(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The lag is the number of records that are not read yet."""
    users = kafka.topic("users")
    spark = open_session(debug=False, state_partitions=2)
    gate = checkpoint.parent / "gate"
    functions = StatefulFunctions()

    @functions.bind("test.fns/slow")
    def slow(ctx: Context, message: Message) -> None:
        while ctx.record is not None and ctx.record.offset >= 4 and not gate.exists():
            time.sleep(0.1)

    kafka.send(users, [("Ada", "a")] * 11)
    lag = f"ingress.test/in.topic.{users}.partition.0.lag"
    try:
        with running(kafka.module({users: ["test.fns/slow"]}), functions, checkpoint):
            wait(lambda: metrics(spark).get(lag) == 7)
            gate.touch()
            wait(lambda: metrics(spark).get(lag) == 0)
    finally:
        gate.touch()


def test_an_update_sets_as_many_partitions_as_time_allows(
    kafka: KafkaHarness, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next update goes on with the remaining partitions, and begins anew after all of them."""
    ingresses = parse_module(kafka.module({"users": ["test.fns/f"]})).ingresses
    spark = open_session(debug=False, state_partitions=2)
    monkeypatch.setattr("statefun.runtime.reporting.metrics._TURN", timedelta(0))
    prefix = "ingress.test/in.topic.users.partition"
    names = [f"{prefix}.{n}.{kind}" for kind in ("currentOffset", "lag") for n in range(2)]
    told = []

    with closing(GroupOffsets(ingresses, [None], CommitLog(Folder.at(checkpoint)))) as groups:
        told_of = Metrics(ingresses, [], [None], groups, Summary())
        told_of.open()
        for read in (*[3] * 4, *[5] * 5):
            source = SimpleNamespace(
                startOffset=None,
                endOffset=json.dumps({"users": {"0": read, "1": read}}),
                latestOffset=json.dumps({"users": {"0": 7, "1": 7}}),
            )
            told_of.update(cast("Any", SimpleNamespace(sources=[source])))
            found = metrics(spark)
            told.append([found.get(name) for name in names])
        told_of.close()

    assert told == [
        [3, None, None, None],
        [3, 3, None, None],
        [3, 3, 4, None],
        [3, 3, 4, 4],
        [3, 3, 4, 4],  # the end of the first round
        [5, 3, 4, 4],
        [5, 5, 4, 4],
        [5, 5, 2, 4],
        [5, 5, 2, 2],
    ]


def test_sources_may_report_any_text(checkpoint: Path) -> None:
    """Spark's own sources, too: a text that is no number is left out, and fractions are cut off.

    A figure that is not reported any more is removed.
    """
    files = "{path: /data, format: {type: lines}, valueType: a/A, targets: [a/f]}"
    text = f"kind: io.statefun.file.v1/ingress\nspec: {{id: test/in, files: [{files}]}}\n"
    connectors = parse_module(text).connector_ingresses
    spark = open_session(debug=False, state_partitions=2)
    source = SimpleNamespace(endOffset="7", metrics={"avgOffsetsBehindLatest": "2.5", "is": "a"})

    with closing(GroupOffsets([], [], CommitLog(Folder.at(checkpoint)))) as groups:
        told_of = Metrics([], connectors, [], groups, Summary())
        told_of.open()
        told_of.update(cast("Any", SimpleNamespace(sources=[source])))
        found = metrics(spark)
        source.metrics = {}
        told_of.update(cast("Any", SimpleNamespace(sources=[source])))
        after = metrics(spark)
        told_of.close()

    told = {name: value for name, value in found.items() if name.startswith("ingress.")}
    assert told == {"ingress.test/in.avgOffsetsBehindLatest": 2}
    assert after == {name: value for name, value in found.items() if name not in told}


def test_broken_metrics_do_not_end_the_application(
    kafka: KafkaHarness,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The application logs it once and goes on; the end of the JVM still ends it."""
    ingresses = parse_module(kafka.module({"users": ["test.fns/f"]})).ingresses
    open_session(debug=False, state_partitions=2)
    taken = iter([None, ValueError("a gauge that is none"), ConnectionError("gone")])

    def set_gauge(source: MetricsSource, name: str, value: int) -> None:
        error = next(taken)
        if error is not None:
            raise error

    monkeypatch.setattr(MetricsSource, "set", set_gauge)
    with closing(GroupOffsets(ingresses, [None], CommitLog(Folder.at(checkpoint)))) as groups:
        told_of = Metrics(ingresses, [], [None], groups, Summary())
        told_of.open()
        for _ in range(3):
            told_of.update(None)
        told_of.close()
        warnings = [record.getMessage() for record in caplog.records]

        told_of.open()
        with pytest.raises(ConnectionError):
            told_of.update(None)

    text = "the application goes on without metrics, since they cannot be set"
    assert warnings == [f"{text}: ValueError: a gauge that is none"]
