# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import textwrap
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from statefun.module.loader import load_module_files
from statefun.module.model import (
    DeliverySemantic,
    FromDate,
    FromEarliest,
    FromGroupOffsets,
    FromLatest,
    FromSpecificOffsets,
    KafkaEgress,
    KafkaIngress,
    Module,
    StartupPosition,
    TopicPartition,
)
from statefun.sdk.address import TypeName

DOCUMENTS = Path(__file__).parent / "documents"
POSITIONS: dict[str, StartupPosition] = {
    "group-offsets": FromGroupOffsets(),
    "earliest": FromEarliest(),
    "latest": FromLatest(),
    "specific-offsets": FromSpecificOffsets(
        {
            TopicPartition("user-topic", 0): 91,
            TopicPartition("user-topic", 1): 11,
            TopicPartition("user-topic", 2): 8,
        }
    ),
    "date": FromDate(datetime(2020, 2, 1, 4, 15, tzinfo=timezone.utc)),
}
SEMANTICS = {
    "none": DeliverySemantic.NONE,
    "at-least-once": DeliverySemantic.AT_LEAST_ONCE,
    "exactly-once": DeliverySemantic.EXACTLY_ONCE,
}


def _load(name: str) -> Module:
    return load_module_files([DOCUMENTS / f"{name}.yaml"], {})


def _snippet(name: str) -> str:
    return textwrap.indent((DOCUMENTS / f"{name}.yaml").read_text(), "  ")


def test_current_documentation_loads() -> None:
    """The ingress and the egress of the current documentation load, together."""
    module = load_module_files(
        [DOCUMENTS / "current-ingress.yaml", DOCUMENTS / "current-egress.yaml"], {}
    )

    [ingress] = module.ingresses
    [egress] = module.egresses
    assert ingress.id == egress.id == TypeName("com.example", "users")
    assert ingress.consumer_group_id == "my-consumer-group"
    assert ingress.startup_position == FromEarliest()
    assert ingress.topics[0].value_type == TypeName("com.example", "User")
    assert ingress.topics[0].targets == (TypeName("com.example.fns", "greeter"),)
    assert egress.delivery_semantic is DeliverySemantic.EXACTLY_ONCE
    assert egress.transaction_timeout == timedelta(minutes=15)
    assert egress.properties == {"foo.config": "bar"}


def test_documents_of_version_1_load() -> None:
    """Documents of version 1.0 load, although they are indented wrongly."""
    [ingress] = _load("v1-ingress").ingresses
    [egress] = _load("v1-egress").egresses

    assert ingress.id == TypeName("example", "user-ingress")
    assert ingress.topics[0].value_type == TypeName(
        "type.googleapis.com", "org.apache.flink.statefun.docs.models.User"
    )
    assert ingress.topics[0].targets == (
        TypeName("example-namespace", "my-function-1"),
        TypeName("example-namespace", "my-function-2"),
    )
    assert egress.id == TypeName("example", "output-messages")
    assert egress.transaction_timeout == timedelta(seconds=100)


def test_documents_of_the_guide_load() -> None:
    """The documents of the guide load."""
    [ingress] = _load("guide-ingress").ingresses
    [egress] = _load("guide-egress").egresses

    assert ingress.startup_position == FromLatest()
    assert ingress.topics[0].targets == (TypeName("example", "order-handler"),)
    assert egress.transaction_timeout == timedelta(minutes=1)


@pytest.mark.parametrize("source", ["current", "v1"])
@pytest.mark.parametrize("name", list(POSITIONS))
def test_snippets_of_startup_positions_load(
    read_ingress: Callable[..., KafkaIngress], source: str, name: str
) -> None:
    """The snippets of startup positions load inside an ingress."""
    ingress = read_ingress(_snippet(f"{source}-snippet-{name}"))

    assert ingress.startup_position == POSITIONS[name]


@pytest.mark.parametrize("source", ["current", "v1"])
@pytest.mark.parametrize("name", list(SEMANTICS))
def test_snippets_of_delivery_semantics_load(
    read_egress: Callable[..., KafkaEgress], source: str, name: str
) -> None:
    """The snippets of delivery semantics load inside an egress."""
    egress = read_egress(_snippet(f"{source}-snippet-{name}"))

    assert egress.delivery_semantic is SEMANTICS[name]
    assert egress.transaction_timeout == timedelta(minutes=15)


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("targets", [["orders/order-handler", "audit/order-audit", "billing/order-billing"]]),
        ("topics", [["orders/handler"], ["shipments/handler"]]),
    ],
)
def test_snippets_of_topics_load(tmp_path: Path, name: str, targets: list[list[str]]) -> None:
    """The snippets of topics load inside an ingress."""
    file = tmp_path / "module.yaml"
    file.write_text(
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec:\n"
        "  id: example/in\n"
        "  address: kafka:9092\n"
        "  consumerGroupId: group\n" + _snippet(f"guide-snippet-{name}")
    )

    [ingress] = load_module_files([file]).ingresses

    assert [[str(target) for target in route.targets] for route in ingress.topics] == targets


def test_documents_of_version_3_load() -> None:
    """Documents of version 3.0 load, with components of all kinds."""
    module = _load("v3")

    [ingress] = module.ingresses
    [egress] = module.egresses
    assert ingress.id == TypeName("example", "names")
    assert egress.transaction_timeout == timedelta(seconds=100)
    assert [(other.kind, str(other.id)) for other in module.connector_ingresses] == [
        ("io.statefun.kinesis.v1/ingress", "example/stream"),
    ]
    assert not module.unsupported
    [endpoint] = module.endpoints
    assert str(endpoint.functions) == "example/*"


def test_documents_of_version_2_load() -> None:
    """Documents of version 2.0 load; components that cannot run are unsupported."""
    module = _load("v2")

    [ingress] = module.ingresses
    assert [str(route.value_type) for route in ingress.topics] == [
        "type.googleapis.com/org.apache.flink.statefun.docs.models.User",
        "com.googleapis/org.apache.flink.statefun.docs.models.User",
        "example/User",
    ]
    assert [str(egress.id) for egress in module.egresses] == ["example/out"]
    assert [(other.kind, other.id) for other in module.unsupported] == [
        ("statefun.kafka.io/protobuf-ingress", "example/raw"),
        ("functions/grpc", "example/hello"),
        ("functions/http", "example/world"),
        ("org.apache.flink.statefun.sdk/protobuf-router", "example/raw"),
    ]
