# SPDX-License-Identifier: Apache-2.0
"""What a collector gets is what the page for Prometheus has."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from admin_api import MODULE, functions
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality as Temporality
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as Received
from otlp_receiver import attributes
from prometheus_client.parser import text_string_to_metric_families

from statefun.engine.clock import SystemClock
from statefun.engine.tallies import BOUNDS
from statefun.module.loader import parse_module
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.admin.metric_table import ALL_METRICS, Metric, metrics_text
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.reporting.figures import EgressFigures, Figures, PartitionFigures
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.settings import Settings
from statefun.runtime.telemetry.metric_points import MetricPoints
from statefun.runtime.telemetry.resource import application_resource, own_scope

RESOURCE = application_resource("greeter")
STEADY = [each for each in ALL_METRICS if each.convention != "statefun.last_commit.age"]
"""All metrics but one that is another number each time that it is asked."""
COUNTS = st.integers(0, 2**50)
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1
)
FUNCTIONS = st.dictionaries(
    NAMES,
    st.tuples(COUNTS, st.lists(COUNTS, min_size=15, max_size=15), st.floats(0, 1e9), COUNTS),
    max_size=3,
)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """Return the orders to an application whose query does not run."""
    control, checkpoint = Control(), Folder.at(tmp_path_factory.mktemp("checkpoint"))
    with control.obeying(checkpoint):
        yield control


def views_of(control: Control, figures: Figures) -> AdminViews:
    """Return the views of an application whose query does not run."""
    settings = Settings.resolve({}, None)
    definition = Definition(parse_module(MODULE), functions(), settings, SystemClock())
    return AdminViews(definition, control, figures)


def received(points: MetricPoints, now: int) -> dict[str, Received]:
    """Return what a collector gets, by name."""
    [resource] = encode_metrics(points.at(now)).resource_metrics
    [scope] = resource.scope_metrics
    return {each.name: each for each in scope.metrics}


def samples_of(metric: Metric, exported: Received) -> dict[Any, float]:
    """Return the samples that Prometheus' text form has of an exported metric."""
    samples: dict[Any, float] = {}
    for point in getattr(exported, exported.WhichOneof("data") or "").data_points:
        found = attributes(point.attributes)
        labels = [
            (label, found.get(name, ""))
            for label, name in zip(metric.labels, metric.attributes, strict=True)
        ]
        if metric.kind != "histogram":
            value = getattr(point, point.WhichOneof("value"))
            samples[metric.name, frozenset(labels)] = value
            continue
        bounds = [*map(str, point.explicit_bounds), "+Inf"]
        for index, bound in enumerate(bounds):
            total = sum(point.bucket_counts[: index + 1])
            samples[f"{metric.name}_bucket", frozenset([*labels, ("le", bound)])] = total
        samples[f"{metric.name}_sum", frozenset(labels)] = point.sum
        samples[f"{metric.name}_count", frozenset(labels)] = point.count
    return samples


@given(
    called=FUNCTIONS,
    batches=COUNTS,
    partitions=st.lists(
        st.tuples(NAMES, COUNTS, COUNTS), max_size=3, unique_by=lambda each: each[0]
    ),
)
def test_a_collector_gets_what_prometheus_gets(
    control: Control,
    called: dict[str, tuple[int, list[int], float, int]],
    batches: int,
    partitions: list[tuple[str, int, int]],
) -> None:
    """All numbers, and all labels; an attribute that is empty is left out."""
    figures = Figures()
    for name, (invocations, durations, seconds, sent) in called.items():
        counts = Outcome.FunctionCounts(
            typename=name,
            invocations=invocations,
            durations=durations,
            seconds=seconds,
            messages={name: sent},
        )
        figures.staged(
            [
                Outcome(
                    functions=[counts],
                    failed=[Outcome.Failed(typename=name, code="SF301", count=3)],
                )
            ]
        )
    figures.summary = Summary(batches=batches)
    figures.partitions = [
        PartitionFigures("test/in", name, "0", "", read, lag, 0) for name, read, lag in partitions
    ]
    figures.egresses = {"test/out": EgressFigures(batches, 2, 3)}
    views = views_of(control, figures)

    exported = received(MetricPoints(views, RESOURCE, own_scope(), 1, STEADY), time.time_ns())

    found: dict[Any, float] = {}
    for metric in STEADY:
        if metric.convention in exported:
            assert exported[metric.convention].description == metric.meaning
            found |= samples_of(metric, exported[metric.convention])
    page = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics_text(views))
        for sample in family.samples
        if sample.name != "statefun_last_commit_age_seconds"
    }
    assert found.keys() == page.keys()
    assert all(math.isclose(found[key], page[key], rel_tol=1e-12) for key in page)


def test_names_and_units_are_those_of_the_conventions(control: Control) -> None:
    """For messaging and the JVM, as far as the table has them."""
    figures = Figures()
    figures.staged(
        [Outcome(functions=[Outcome.FunctionCounts(typename="t/f", durations=[1] * 15)])]
    )
    figures.partitions = [PartitionFigures("test/in", "users", "0", "tests", 5, 1, 2)]

    found = received(MetricPoints(views_of(control, figures), RESOURCE, own_scope(), 7), 9)

    consumed = found["messaging.client.consumed.messages"]
    (point,) = consumed.sum.data_points
    assert (consumed.unit, consumed.sum.is_monotonic) == ("{message}", True)
    assert consumed.sum.aggregation_temporality == Temporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (3, 7, 9)
    assert attributes(point.attributes) == {
        "messaging.system": "kafka",
        "statefun.ingress": "test/in",
        "messaging.destination.name": "users",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "tests",
    }
    durations = found["messaging.process.duration"]
    (spread,) = durations.histogram.data_points
    assert (durations.unit, spread.count) == ("s", 15)
    assert tuple(spread.explicit_bounds) == BOUNDS
    assert not spread.HasField("min")
    assert not spread.HasField("max")
    assert found["jvm.memory.used"].unit == "By"
    assert found["jvm.memory.used"].WhichOneof("data") == "gauge"


def test_a_count_of_another_run_begins_again(control: Control) -> None:
    """A collector takes it for a reset; the counts of the process go on."""
    figures = Figures()
    points = MetricPoints(views_of(control, figures), RESOURCE, own_scope(), 1)

    def starts(now: int) -> tuple[int, int]:
        found = received(points, now)
        batches, functions = found["statefun.batches"], found["statefun.function.in"]
        return tuple(  # type: ignore[return-value] # two of them
            each.sum.data_points[0].start_time_unix_nano for each in (batches, functions)
        )

    figures.staged(
        [
            Outcome(
                functions=[
                    Outcome.FunctionCounts(typename="t/f", invocations=4, durations=[0] * 15)
                ]
            )
        ]
    )
    figures.summary.batches = 5
    assert starts(10) == (1, 1)
    figures.summary = Summary(batches=2)
    assert starts(20) == (10, 1)
    figures.summary.batches = 3
    assert starts(30) == (10, 1)


def test_counts_of_partitions_that_are_gone_are_forgotten(control: Control) -> None:
    """Topics come and go for as long as the application runs; one that comes back begins anew."""
    figures = Figures()
    points = MetricPoints(views_of(control, figures), RESOURCE, own_scope(), 1, STEADY)

    def starts(now: int, *topics: str) -> dict[str, int]:
        figures.partitions = [
            PartitionFigures("test/in", topic, "0", "", 5, 0, 0) for topic in topics
        ]
        exported = received(points, now).get("messaging.client.consumed.messages")
        return {
            attributes(point.attributes)["messaging.destination.name"]: point.start_time_unix_nano
            for point in ([] if exported is None else exported.sum.data_points)
        }

    assert starts(10, "users") == {"users": 1}
    known = len(points._counts)  # noqa: SLF001 - nobody else sees what it keeps
    assert starts(20, "users", "orders") == {"users": 1, "orders": 10}
    for number in range(50):
        starts(30 + number, f"t{number}")
    assert starts(100, "users") == {"users": 79}
    assert len(points._counts) == known  # noqa: SLF001 - as above
