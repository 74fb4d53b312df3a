# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import statefun

NAMES = [
    "Address",
    "BindingError",
    "BoolType",
    "BytesType",
    "CheckpointError",
    "ConfigurationError",
    "ConnectorError",
    "Context",
    "DefinitionError",
    "DoubleType",
    "EgressMessage",
    "EndpointError",
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
    "KinesisEgressMessage",
    "LongType",
    "Message",
    "ModuleError",
    "OnFailure",
    "PlatformError",
    "RecordError",
    "RequestError",
    "RequestReplyHandler",
    "Retry",
    "SdkAddress",
    "SimpleType",
    "State",
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
    "UnexpectedValueError",
    "UnknownEgressError",
    "UnknownFunctionError",
    "ValueDecodeError",
    "ValueSpec",
    "asgi",
    "egress_message_builder",
    "function",
    "kafka_egress_message",
    "kinesis_egress_message",
    "make_avro_type",
    "make_json_type",
    "make_msgpack_type",
    "make_protobuf_type",
    "make_schema_registry_type",
    "message_builder",
    "simple_type",
    "state_value",
    "types",
]


def test_public_names_are_these() -> None:
    """A name that comes or goes is a decision."""
    assert statefun.__all__ == NAMES


def test_public_names_are_sorted() -> None:
    """The list can be searched by eye, and no name is in it twice."""
    assert statefun.__all__ == sorted(set(statefun.__all__))


@pytest.mark.parametrize("name", NAMES)
def test_public_names_can_be_imported(name: str) -> None:
    """All promised names exist."""
    assert getattr(statefun, name) is not None


WITHOUT_EXAMPLE = {
    "FailurePolicy",  # an alias
    "make_schema_registry_type",  # needs a registry
    "types",  # an object: its class has one
}


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT_EXAMPLE))
def test_public_names_have_an_example(name: str) -> None:
    """In the docstring of the name or of one of its members; all of them are executed."""
    named = getattr(statefun, name)
    members = vars(named).values() if isinstance(named, type) else ()
    is_error = isinstance(named, type) and issubclass(named, statefun.StatefunError)

    assert is_error or any(">>>" in (inspect.getdoc(each) or "") for each in (named, *members))


def test_public_names_are_listed() -> None:
    """``dir`` lists all names, also names that are imported on demand."""
    assert set(NAMES) <= set(dir(statefun))


def test_the_version_is_the_one_that_is_installed() -> None:
    """The package's metadata has it, and the changelog begins with it."""
    root = Path(__file__).resolve().parents[1]
    changelog = (root / "CHANGELOG.md").read_text("utf-8")

    assert f'\nversion = "{statefun.__version__}"\n' in (root / "pyproject.toml").read_text("utf-8")
    assert changelog.partition("\n## ")[2].split()[0] == statefun.__version__
    assert "__version__" in dir(statefun)
