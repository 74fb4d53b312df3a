# SPDX-License-Identifier: Apache-2.0
"""The metrics of an application, and their text form for Prometheus.

Names, attributes and units follow OpenTelemetry's conventions for messaging where these have the same meaning; the text
form writes them in Prometheus' style. No attribute contains an address, so that the number of values grows with the
functions, topics and errors alone; names of functions beyond a limit are counted together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import attrs

from statefun.engine.tallies import BOUNDS
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.reporting.figures import Durations, FunctionFigures

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the text form."""
_NO_ATTRIBUTES: tuple[str, ...] = ()
Sample = tuple[tuple[str, ...], float | Durations]
"""The values of a metric's attributes, and its value."""
_UNITS = {"s": "_seconds", "By": "_bytes"}
"""What names in Prometheus' style end with, by unit; a unit such as ``{message}`` adds nothing to the name."""


@attrs.frozen
class Metric:
    """A metric: its name, its unit, and how its values are found."""

    convention: str
    """The name as OpenTelemetry writes it."""
    unit: str
    """The unit of the values in UCUM: ``s`` for seconds, or ``{message}`` for a number of messages."""
    kind: str
    """``counter``, ``gauge`` or ``histogram``."""
    attributes: tuple[str, ...]
    """The names of the attributes, as OpenTelemetry writes them."""
    meaning: str
    samples: Callable[[AdminViews], Iterable[Sample]]

    @property
    def name(self) -> str:
        """The name as Prometheus writes it: it ends with the unit, or with ``_total`` for a counter."""
        total = "_total" if self.kind == "counter" else ""
        return f"{_underscored(self.convention)}{_UNITS.get(self.unit, '')}{total}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the attributes as Prometheus writes them."""
        return tuple(map(_underscored, self.attributes))


def metrics_text(views: AdminViews) -> str:
    """Return all metrics of an application in Prometheus' text form."""
    return "".join(line for metric in ALL_METRICS for line in _lines(metric, views))


def _lines(metric: Metric, views: AdminViews) -> Iterator[str]:
    samples = list(metric.samples(views))
    if not samples:
        return
    yield f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"
    for values, value in samples:
        labels = [f'{name}="{_escaped(text)}"' for name, text in zip(metric.labels, values)]  # noqa: B905 - as many
        if not isinstance(value, Durations):
            yield f"{metric.name}{_in_braces(labels)} {value:.17g}\n"
            continue
        count = 0
        for bound, number in zip((*map(str, BOUNDS), "+Inf"), value.counts, strict=True):
            count += number
            up_to = [*labels, f'le="{bound}"']
            yield f"{metric.name}_bucket{_in_braces(up_to)} {count}\n"
        yield f"{metric.name}_sum{_in_braces(labels)} {value.seconds:.17g}\n"
        yield f"{metric.name}_count{_in_braces(labels)} {count}\n"


def _in_braces(labels: list[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _underscored(name: str) -> str:
    return name.replace(".", "_")


def _escaped(text: str) -> str:
    r"""Escape the value of a label.

    >>> print(_escaped('a"b'))
    a\"b
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _of_summary(name: str) -> Callable[[AdminViews], Iterable[Sample]]:
    return lambda views: [((), getattr(views.figures.summary, name))]


def _of_functions(
    find: Callable[[str, FunctionFigures], Iterable[Sample]],
) -> Callable[[AdminViews], Iterable[Sample]]:
    def samples(views: AdminViews) -> Iterable[Sample]:
        with views.figures.lock:
            return [
                sample
                for name, function in sorted(views.figures.functions.items())
                for sample in find(name, function)
            ]

    return samples


def _consumed(views: AdminViews) -> Iterable[Sample]:
    for each in views.figures.partitions:
        labels = "kafka", each.ingress, each.topic, each.partition, each.group
        yield labels, each.read - each.first


def _lag(views: AdminViews) -> Iterable[Sample]:
    for each in views.figures.partitions:
        yield (each.ingress, each.topic, each.partition), each.lag


def _paused(views: AdminViews) -> Iterable[Sample]:
    paused = views.paused
    yield ("application", ""), float(paused.application)
    for name in sorted(views.parts.ingresses):
        yield ("ingress", name), float(name in paused.ingresses)
    for name in sorted(views.parts.egresses):
        yield ("egress", name), float(name in paused.egresses)


def _watermark(views: AdminViews) -> Iterable[Sample]:
    watermark = views.figures.summary.watermark
    return [] if watermark is None else [((), watermark.timestamp())]


def _last_batch(views: AdminViews) -> Iterable[Sample]:
    with views.figures.lock:
        return [((), each.seconds) for each in list(views.figures.batches)[-1:]]


def _egress(name: str) -> Callable[[AdminViews], Iterable[Sample]]:
    return lambda views: [
        ((id_,), getattr(each, name)) for id_, each in sorted(views.figures.egresses.items())
    ]


_FUNCTION = ("statefun.function",)

ALL_METRICS = (
    Metric(
        "messaging.client.consumed.messages",
        "{message}",
        "counter",
        (
            "messaging.system",
            "statefun.ingress",
            "messaging.destination.name",
            "messaging.destination.partition.id",
            "messaging.consumer.group.name",
        ),
        "records that were read from a partition of a topic",
        _consumed,
    ),
    Metric(
        "messaging.client.sent.messages",
        "{message}",
        "counter",
        ("statefun.egress",),
        "records that were published to an egress",
        _egress("records"),
    ),
    Metric(
        "messaging.process.duration",
        "s",
        "histogram",
        _FUNCTION,
        "how long the calls of a function took; a call has all messages of an address in a micro-batch",
        _of_functions(lambda name, each: [((name,), each.durations)]),
    ),
    Metric(
        "statefun.function.in",
        "{message}",
        "counter",
        _FUNCTION,
        "messages that a function was called with",
        _of_functions(lambda name, each: [((name,), each.invocations)]),
    ),
    Metric(
        "statefun.function.out",
        "{message}",
        "counter",
        (*_FUNCTION, "statefun.target"),
        "messages that a function has sent to another function or to itself",
        _of_functions(
            lambda name, each: [((name, target), n) for target, n in sorted(each.messages.items())]
        ),
    ),
    Metric(
        "statefun.function.out_egress",
        "{record}",
        "counter",
        (*_FUNCTION, "statefun.egress"),
        "records that a function has sent to an egress",
        _of_functions(
            lambda name, each: [((name, egress), n) for egress, n in sorted(each.records.items())]
        ),
    ),
    Metric(
        "statefun.function.failures",
        "{failure}",
        "counter",
        (*_FUNCTION, "error.type"),
        "how often messages to a function have failed, by the code of the error",
        _of_functions(
            lambda name, each: [((name, code), n) for code, n in sorted(each.failures.items())]
        ),
    ),
    Metric(
        "statefun.function.retries",
        "{retry}",
        "counter",
        _FUNCTION,
        "how often a message is tried again later because the function has failed",
        _of_functions(lambda name, each: [((name,), each.retries)]),
    ),
    Metric(
        "statefun.ingress.lag.records",
        "{record}",
        "gauge",
        ("statefun.ingress", "messaging.destination.name", "messaging.destination.partition.id"),
        "records of a partition that are not read yet",
        _lag,
    ),
    Metric(
        "statefun.ingress.records",
        "{record}",
        "counter",
        ("statefun.ingress",),
        "records that another ingress than Kafka's has read",
        lambda views: [((name,), n) for name, n in sorted(views.figures.connectors.items())],
    ),
    Metric(
        "statefun.egress.lag.records",
        "{record}",
        "gauge",
        ("statefun.egress",),
        "records of committed micro-batches that are not published yet",
        _egress("waiting_records"),
    ),
    Metric(
        "statefun.egress.lag.batches",
        "{batch}",
        "gauge",
        ("statefun.egress",),
        "committed micro-batches with records that are not published yet",
        _egress("waiting_batches"),
    ),
    Metric(
        "statefun.batches",
        "{batch}",
        "counter",
        _NO_ATTRIBUTES,
        "micro-batches of the present run",
        _of_summary("batches"),
    ),
    Metric(
        "statefun.batch.duration",
        "s",
        "gauge",
        _NO_ATTRIBUTES,
        "how long the newest micro-batch took",
        _last_batch,
    ),
    Metric(
        "statefun.last_commit.age",
        "s",
        "gauge",
        _NO_ATTRIBUTES,
        "how long ago the newest micro-batch was committed",
        lambda views: [((), max(0.0, time.time() - views.figures.committed_at))],
    ),
    Metric(
        "statefun.backlog.messages",
        "{message}",
        "gauge",
        _NO_ATTRIBUTES,
        "messages that are not handled yet: between functions, to timers, and those that wait for long calls or endpoints",
        _of_summary("backlog"),
    ),
    Metric(
        "statefun.skipped",
        "{message}",
        "counter",
        _NO_ATTRIBUTES,
        "messages and records that were left out because of their failure policy",
        _of_summary("skipped"),
    ),
    Metric(
        "statefun.dead_letters",
        "{message}",
        "counter",
        _NO_ATTRIBUTES,
        "messages and records that became dead letters",
        _of_summary("dead_letters"),
    ),
    Metric(
        "statefun.refused",
        "{record}",
        "counter",
        _NO_ATTRIBUTES,
        "records that a cluster has refused for good",
        _of_summary("refused"),
    ),
    Metric(
        "statefun.postponed",
        "{message}",
        "counter",
        _NO_ATTRIBUTES,
        "how often a message had to wait for its endpoint",
        _of_summary("postponed"),
    ),
    Metric(
        "statefun.endpoints_down",
        "{endpoint}",
        "gauge",
        _NO_ATTRIBUTES,
        "endpoints that cannot be reached at present",
        _of_summary("endpoints_down"),
    ),
    Metric(
        "statefun.calls_under_way",
        "{call}",
        "gauge",
        _NO_ATTRIBUTES,
        "calls that have left their micro-batches, and go on",
        _of_summary("calls_under_way"),
    ),
    Metric(
        "statefun.watermark.timestamp",
        "s",
        "gauge",
        _NO_ATTRIBUTES,
        "the watermark, if an ingress declares event time",
        _watermark,
    ),
    Metric(
        "statefun.paused",
        "{part}",
        "gauge",
        ("kind", "name"),
        "1 for a part of the application that is paused, 0 for another one",
        _paused,
    ),
    Metric(
        "statefun.restarts",
        "{restart}",
        "counter",
        _NO_ATTRIBUTES,
        "how often another run has begun, after an order or the loss of a worker",
        lambda views: [((), views.restarts)],
    ),
    Metric(
        "jvm.memory.used",
        "By",
        "gauge",
        ("jvm.memory.type",),
        "used memory of the JVM of the driver",
        lambda views: [(("heap",), views.figures.heap[0])],
    ),
    Metric(
        "jvm.memory.limit",
        "By",
        "gauge",
        ("jvm.memory.type",),
        "the largest size of the JVM's memory",
        lambda views: [(("heap",), views.figures.heap[1])],
    ),
)
"""All metrics, in the order of the text."""
