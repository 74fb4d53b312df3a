# SPDX-License-Identifier: Apache-2.0
"""The metrics and traces that a collector gets of an application on Spark."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import KafkaHarness, run
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_receiver import attributes, receiving
from patience import SECONDS
from pyspark.sql import SparkSession

from statefun import Address, Context, KafkaEgressMessage, StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.runtime.telemetry import exports

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture(autouse=True)
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the end of an application wait for its last export, however slow the machine is."""
    monkeypatch.setattr(exports, "_END_SECONDS", SECONDS)


def functions(topic: str) -> StatefulFunctions:
    """Return functions that publish the spans in which they are called, as OpenTelemetry's API tells them."""
    registry = StatefulFunctions()

    def present() -> str:
        span = trace.get_current_span().get_span_context()
        return f"{span.trace_id:032x}/{span.span_id:016x}"

    @registry.bind("test/greeter", on_failure="skip")
    def greet(ctx: Context, name: str) -> None:
        if name == "Eve":
            raise ValueError(name)
        ctx.send(Address("test/printer", ctx.address.id), present())

    @registry.bind("test/printer")
    async def show(ctx: Context, sender: str) -> None:
        await asyncio.sleep(0.01)
        record = KafkaEgressMessage.for_egress("test/out").with_topic(topic)
        ctx.send(record.with_key(sender).with_value(present()).build())

    return registry


def greeting(kafka: KafkaHarness, names: str) -> str:
    """Return the module file of an application that reads texts from the topic ``names``."""
    return kafka.module({names: ["test/greeter"]}).replace(
        "valueType: io.statefun.types/string", "valueFormat: {type: text}"
    )


def test_a_collector_gets_what_counts(broker: EmbeddedKafka, tmp_path: Path) -> None:
    """All spans of committed micro-batches, in which functions have found themselves, and the last counts."""
    kafka = KafkaHarness(broker, "telemetry")
    names, spans = kafka.topic("names"), kafka.topic("spans")
    kafka.send(names, [("a", "Ada"), ("b", "Bob"), ("e", "Eve")])
    module = greeting(kafka, names)
    with receiving() as receiver:
        run(
            module,
            functions(spans),
            tmp_path / "checkpoint",
            trace_journal="10m",
            otlp_endpoint=receiver.url,
        )
        metrics = {
            attributes(point.attributes)["statefun.function"]: point.as_int
            for point in receiver.newest()["statefun.function.in"].sum.data_points
        }
        (consumed,) = receiver.newest()["messaging.client.consumed.messages"].sum.data_points
        (published,) = receiver.newest()["messaging.client.sent.messages"].sum.data_points
        name = SparkSession.builder.getOrCreate().sparkContext.appName
        resource = receiver.traces[0].resource_spans[0].resource

    assert attributes(resource.attributes)["service.name"] == name
    assert metrics == {"test/greeter": 3, "test/printer": 2}
    assert (consumed.as_int, published.as_int) == (3, 2)
    found = {span.span_id: span for span in receiver.spans()}
    assert len(found) == len(receiver.spans()) == 7
    processed = [span for span in found.values() if span.kind == Span.SPAN_KIND_CONSUMER]
    by_place = {f"{span.trace_id.hex()}/{span.span_id.hex()}": span for span in processed}
    records = kafka.receive(spans)
    assert len(records) == 2
    for record in records:
        printer, greeter = by_place[str(record.value)], by_place[str(record.key)]
        assert printer.name == "process test/printer"
        assert (printer.trace_id, printer.parent_span_id) == (greeter.trace_id, greeter.span_id)
        assert printer.end_time_unix_nano - printer.start_time_unix_nano >= 10_000_000
        assert attributes(greeter.attributes)["messaging.destination.name"] == names
        assert not greeter.parent_span_id
    (failed,) = [span for span in processed if span.status.message]
    assert attributes(failed.attributes)["error.type"] == "ValueError"
    sent = [span for span in found.values() if span.kind == Span.SPAN_KIND_PRODUCER]
    assert {span.name for span in sent} == {f"send {spans}"}
    assert {span.parent_span_id for span in sent} == {
        by_place[str(record.value)].span_id for record in records
    }


def test_a_trace_that_comes_with_a_record_goes_on(broker: EmbeddedKafka, tmp_path: Path) -> None:
    """If it is sampled, also if no record begins a trace."""
    kafka = KafkaHarness(broker, "continued")
    names, spans = kafka.topic("names"), kafka.topic("spans")
    producer = Producer({"bootstrap.servers": kafka.address})
    for key, flags in (("a", "01"), ("b", "00"), ("c", None)):
        header = f"00-{TRACE}-{PARENT}-{flags}"
        producer.produce(names, key, key, headers=[("traceparent", header)] if flags else [])
    producer.flush()
    module = greeting(kafka, names)
    with receiving() as receiver:
        run(
            module,
            functions(spans),
            tmp_path / "checkpoint",
            trace_journal="10m",
            trace_share=0,
            otlp_endpoint=receiver.url,
        )
        found = receiver.spans()

    assert {span.trace_id.hex() for span in found} == {TRACE}
    (first,) = [span for span in found if span.name == "process test/greeter"]
    assert first.parent_span_id.hex() == PARENT
    assert attributes(first.attributes)["statefun.id"] == "a"
    seen = {record.key: record.value for record in kafka.receive(spans)}
    assert len(seen) == 3
    assert f"{TRACE}/{first.span_id.hex()}" in seen
    assert f"{TRACE}/{PARENT}" in seen  # of the one that is not sampled, which has no spans
    assert f"{'0' * 32}/{'0' * 16}" in seen
