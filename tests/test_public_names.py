# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import pytest
from written_docstrings import written_docstrings

import statefun
from statefun import components, joins, windows
from statefun.components import running

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
    "FunctionLogger",
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
    "LateMessageError",
    "LongType",
    "Message",
    "ModuleError",
    "OnFailure",
    "PlatformError",
    "RateLimit",
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
    "secret_type",
    "simple_type",
    "state_value",
    "types",
]

NAMES_OF_COMPONENTS = [
    "COMMON_ROUTE",
    "FAILURE_POLICY",
    "ID",
    "Component",
    "ConnectorEgress",
    "ConnectorIngress",
    "Invalid",
    "Key",
    "Kind",
    "ListNode",
    "MapNode",
    "Node",
    "Problems",
    "ScalarNode",
    "Shape",
    "TopicRoute",
    "Values",
    "Variants",
    "choice",
    "date",
    "described",
    "duration",
    "file_content",
    "flag",
    "integer",
    "legacy_route",
    "list_of",
    "made_route",
    "mapping",
    "member",
    "parsed",
    "plain_route",
    "properties",
    "routes",
    "scalar_schema",
    "shown_uri",
    "text",
    "typename",
    "without_secrets",
]

NAMES_OF_RUNNING_COMPONENTS = [
    "PROBLEM_HEADER",
    "RECORDS",
    "RECORDS_ARROW",
    "Cluster",
    "EgressRecord",
    "FileFacts",
    "Folder",
    "Marker",
    "Offset",
    "Reading",
    "Source",
    "UncertainError",
    "UndeliveredError",
    "Writing",
    "read_framed",
    "write_framed",
]

NAMES_OF_WINDOWS = [
    "Counted",
    "Hopping",
    "Session",
    "Sliding",
    "TimeWindow",
    "Tumbling",
    "Window",
    "WindowContext",
    "WindowedFunction",
    "windowed",
]

NAMES_OF_JOINS = ["JoinedFunction", "Table", "joined", "joined_as_of"]

PUBLIC = {
    statefun: NAMES,
    components: NAMES_OF_COMPONENTS,
    running: NAMES_OF_RUNNING_COMPONENTS,
    windows: NAMES_OF_WINDOWS,
    joins: NAMES_OF_JOINS,
}
"""The public names of each package that programs and other packages import."""


@pytest.mark.parametrize("package", PUBLIC, ids=lambda package: package.__name__)
def test_public_names_are_these(package: ModuleType) -> None:
    """A name that comes or goes is a decision."""
    assert package.__all__ == PUBLIC[package]


def test_public_names_are_sorted() -> None:
    """The list can be searched by eye, and no name is in it twice."""
    assert statefun.__all__ == sorted(set(statefun.__all__))


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in PUBLIC.items() for name in names]
)
def test_public_names_can_be_imported(package: ModuleType, name: str) -> None:
    """All promised names exist."""
    assert getattr(package, name) is not None


WITHOUT_EXAMPLE = {
    "FailurePolicy",  # an alias
    "make_schema_registry_type",  # needs a registry
    "types",  # an object: its class has one
}


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT_EXAMPLE))
def test_public_names_have_an_example(name: str) -> None:
    """In the docstring of the name or of one of its members; all of them are executed."""
    named = getattr(statefun, name)
    is_error = isinstance(named, type) and issubclass(named, statefun.StatefunError)
    texts = [inspect.getdoc(named) or ""]
    if isinstance(named, type):
        written = written_docstrings(named.__module__)
        texts += (text for each, text in written.items() if f"{each}.".startswith(f"{name}."))

    assert is_error or any(">>>" in text for text in texts)


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
