# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import statefun

NAMES = [
    "Address",
    "BindingError",
    "BoolType",
    "CheckpointError",
    "ConfigurationError",
    "Context",
    "DefinitionError",
    "DoubleType",
    "EgressMessage",
    "EngineError",
    "FailurePolicy",
    "FloatType",
    "FunctionError",
    "IngressRecord",
    "IntType",
    "InvocationError",
    "KafkaEgress",
    "KafkaEgressBuilder",
    "KafkaEgressMessage",
    "KafkaError",
    "KafkaIngress",
    "KafkaIngressBuilder",
    "KafkaRecord",
    "KafkaStartupPosition",
    "LongType",
    "Message",
    "ModuleError",
    "OnFailure",
    "PlatformError",
    "RecordError",
    "Retry",
    "SdkAddress",
    "SimpleType",
    "StateDecodeError",
    "StatefulFunctions",
    "StatefunError",
    "StringType",
    "TopicError",
    "Type",
    "TypeName",
    "TypeRegistry",
    "TypeSerializer",
    "TypedValue",
    "UnknownEgressError",
    "UnknownFunctionError",
    "ValueDecodeError",
    "ValueSpec",
    "egress_message_builder",
    "function",
    "kafka_egress_message",
    "make_avro_type",
    "make_json_type",
    "make_protobuf_type",
    "make_schema_registry_type",
    "message_builder",
    "run",
    "simple_type",
]


def test_public_names_are_these() -> None:
    """A name that comes or goes is a decision."""
    assert statefun.__all__ == NAMES


def test_public_names_are_sorted() -> None:
    """The list can be searched by eye, and no name is in it twice."""
    assert statefun.__all__ == sorted(set(statefun.__all__))


@pytest.mark.parametrize("name", NAMES)
def test_public_names_can_be_imported(name: str) -> None:
    """What is promised is there."""
    assert getattr(statefun, name) is not None


def test_public_names_are_listed() -> None:
    """Also those that are imported when they are asked for: editors and people look there."""
    assert set(NAMES) <= set(dir(statefun))
