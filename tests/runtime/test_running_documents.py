# SPDX-License-Identifier: Apache-2.0
"""The module files of all documents, as they are but for the brokers' address, run."""

from __future__ import annotations

import textwrap
from pathlib import Path

import attrs
import pytest
from harness import KafkaHarness, run
from kinesis_server import KinesisHarness

from statefun import (
    Context,
    KafkaEgressMessage,
    KinesisEgressMessage,
    Message,
    StatefulFunctions,
)
from statefun.module.loader import load_module_files, parse_module
from statefun.module.model import Module

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DOCUMENTS = Path(__file__).parents[1] / "module" / "documents"
POSITIONS = ("group-offsets", "earliest", "latest", "specific-offsets", "date")
SEMANTICS = ("none", "at-least-once", "exactly-once")


def served(module: Module, kafka: KafkaHarness, kinesis: KinesisHarness) -> Module:
    """Return a module for the test's servers, which then have its topics and streams."""
    existing = kafka.broker_topics()
    for ingress in module.ingresses:
        for route in ingress.topics:
            if route.topic not in existing:
                kafka.broker.create_topic(route.topic, partitions=3)
                existing.add(route.topic)
    for stream in {route.topic for each in module.connector_ingresses for route in each.topics}:
        kinesis.create(stream)
    return attrs.evolve(
        module,
        connector_ingresses=tuple(
            attrs.evolve(i, settings=kinesis.connected(i.settings))
            for i in module.connector_ingresses
        ),
        connector_egresses=tuple(
            attrs.evolve(e, settings=kinesis.connected(e.settings))
            for e in module.connector_egresses
        ),
        ingresses=tuple(attrs.evolve(i, address=kafka.address) for i in module.ingresses),
        egresses=tuple(attrs.evolve(e, address=kafka.address) for e in module.egresses),
    )


def check_that_it_runs(
    module: Module, kafka: KafkaHarness, kinesis: KinesisHarness, checkpoint: Path
) -> None:
    """Run an application on a module: every record goes to each target and egress."""
    module = served(module, kafka, kinesis)
    out, functions = kafka.topic("out"), StatefulFunctions()
    egresses = [str(egress.id) for egress in module.egresses]

    def forward(ctx: Context, message: Message) -> None:
        for egress in egresses:
            ctx.send(KafkaEgressMessage(egress, topic=out, value=message.raw_value()))

    routes = [route for ingress in module.routed for route in ingress.topics]
    for target in {str(target) for route in routes for target in route.targets}:
        functions.bind(target)(forward)
    run(module, functions, checkpoint)  # for any position: from here on, all records are read
    before = len(kafka.receive(out))
    for topic in {route.topic for ingress in module.ingresses for route in ingress.topics}:
        kafka.send(topic, [("Ada", topic)])
    for stream in {route.topic for each in module.connector_ingresses for route in each.topics}:
        kinesis.put(stream, [("Ada", stream.encode())])
    run(module, functions, checkpoint)
    found = [record.value for record in kafka.receive(out)][before:]
    expected = [route.topic for route in routes for _ in route.targets for _ in egresses]
    assert sorted(found) == sorted(expected)


@pytest.mark.long(minutes=0.6)
def test_documents_run(kafka: KafkaHarness, kinesis: KinesisHarness, checkpoint: Path) -> None:
    """In every format that there ever was, side by side in one application."""
    names = [
        *("current-ingress", "current-egress", "v1-ingress", "v1-egress"),
        *("guide-ingress", "guide-egress", "v2", "v3"),
    ]
    module = load_module_files([DOCUMENTS / f"{name}.yaml" for name in names], {})
    assert len(module.ingresses) == len(module.egresses) == 5
    check_that_it_runs(module, kafka, kinesis, checkpoint)


@pytest.mark.long(minutes=0.5)
def test_snippets_run(kafka: KafkaHarness, kinesis: KinesisHarness, checkpoint: Path) -> None:
    """Startup positions in ingresses, delivery semantics in egresses, of two documents each."""
    documents = []
    for source in ("current", "v1"):
        for position in POSITIONS:
            name = f"{source}-{position}"
            start = (DOCUMENTS / f"{source}-snippet-{position}.yaml").read_text()
            documents.append(
                f"kind: io.statefun.kafka.v1/ingress\nspec:\n  id: example/{name}\n"
                f"  address: kafka:9092\n  consumerGroupId: {checkpoint.parent.name}-{name}\n"
                f"{textwrap.indent(start, '  ')}\n  topics:\n    - topic: user-topic\n"
                "      valueType: example/User\n      targets: [example/greeter]\n"
            )
        for semantic in SEMANTICS:
            delivery = (DOCUMENTS / f"{source}-snippet-{semantic}.yaml").read_text()
            documents.append(
                f"kind: io.statefun.kafka.v1/egress\nspec:\n  id: example/{source}-{semantic}\n"
                f"  address: kafka:9092\n{textwrap.indent(delivery, '  ')}\n"
            )
    check_that_it_runs(parse_module("---\n".join(documents)), kafka, kinesis, checkpoint)


def test_snippets_of_topics_run(
    kafka: KafkaHarness, kinesis: KinesisHarness, checkpoint: Path
) -> None:
    """Several targets of a topic, and several topics."""
    documents = [
        "kind: io.statefun.kafka.v1/egress\nspec:\n  id: example/out\n  address: kafka:9092\n"
    ]
    for name in ("targets", "topics"):
        text = textwrap.indent((DOCUMENTS / f"guide-snippet-{name}.yaml").read_text(), "  ")
        documents.append(
            f"kind: io.statefun.kafka.v1/ingress\nspec:\n  id: example/{name}\n"
            f"  address: kafka:9092\n  consumerGroupId: {checkpoint.parent.name}-{name}\n{text}\n"
        )
    check_that_it_runs(parse_module("---\n".join(documents)), kafka, kinesis, checkpoint)


def test_kinesis_documents_run(kinesis: KinesisHarness, checkpoint: Path) -> None:
    """Streams, positions and properties are those of the document, the server is the test's."""
    module = load_module_files([DOCUMENTS / "other-kinds.yaml"], {})
    functions = StatefulFunctions()

    def forward(ctx: Context, message: Message) -> None:
        ctx.send(
            KinesisEgressMessage(
                "example/out", stream="out", partition_key="Ada", value=message.raw_value()
            )
        )

    [ingress] = module.connector_ingresses
    kinesis.create("out")
    kinesis.create(ingress.topics[0].topic)
    kinesis.put(ingress.topics[0].topic, [("Ada", b"Hello")])
    for target in ingress.topics[0].targets:
        functions.bind(str(target))(forward)
    served_ = attrs.evolve(
        module,
        connector_ingresses=(attrs.evolve(ingress, settings=kinesis.connected(ingress.settings)),),
        connector_egresses=tuple(
            attrs.evolve(e, settings=kinesis.connected(e.settings))
            for e in module.connector_egresses
        ),
    )
    run(served_, functions, checkpoint)

    assert kinesis.read("out") == [("Ada", b"Hello")] * 2
