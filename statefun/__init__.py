# SPDX-License-Identifier: Apache-2.0
"""Stateful functions for Python on Apache Spark: they have addresses and durable state, and send messages.

The public names are here, and in ``statefun.components``, ``statefun.dev``, ``statefun.joins``,
``statefun.testing`` and ``statefun.windows``; all other modules are private to the project.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statefun.compilation import is_compiled
from statefun.sdk.address import Address, TypeName
from statefun.sdk.address import Address as SdkAddress
from statefun.sdk.context import Context
from statefun.sdk.egress import (
    EgressMessage,
    KafkaEgressMessage,
    egress_message_builder,
    kafka_egress_message,
)
from statefun.sdk.errors import (
    BindingError,
    CheckpointError,
    ConfigurationError,
    ConnectorError,
    DefinitionError,
    EndpointError,
    EngineError,
    FunctionError,
    InvocationError,
    KafkaError,
    LateMessageError,
    ModuleError,
    PlatformError,
    RecordError,
    RequestError,
    StateDecodeError,
    StatefunError,
    TopicError,
    UnexpectedValueError,
    UnknownEgressError,
    UnknownFunctionError,
    ValueDecodeError,
)
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.function_logger import FunctionLogger
from statefun.sdk.functions import StatefulFunctions, function
from statefun.sdk.kinesis_message import KinesisEgressMessage, kinesis_egress_message
from statefun.sdk.limits import RateLimit
from statefun.sdk.message import Message, message_builder
from statefun.sdk.primitives import (
    BoolType,
    BytesType,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    StringType,
)
from statefun.sdk.record import IngressRecord, KafkaRecord
from statefun.sdk.request_reply import RequestReplyHandler
from statefun.sdk.state import State
from statefun.sdk.state_fields import state_value
from statefun.sdk.structured import make_json_type, make_msgpack_type, make_protobuf_type
from statefun.sdk.types import (
    SimpleType,
    Type,
    TypedValue,
    TypeRegistry,
    TypeSerializer,
    secret_type,
    simple_type,
)
from statefun.sdk.types import default_types as types
from statefun.sdk.value_spec import ValueSpec

if TYPE_CHECKING:
    from statefun.formats.avro import make_avro_type
    from statefun.formats.schema_registry import make_schema_registry_type
    from statefun.module.builders import (
        KafkaEgress,
        KafkaEgressBuilder,
        KafkaIngress,
        KafkaIngressBuilder,
        KafkaStartupPosition,
    )
    from statefun.runtime.loading.bootstrap import bootstrap as bootstrap
    from statefun.runtime.run import run as run
    from statefun.runtime.stored.state_frame import state as state
    from statefun.serving.asgi import asgi

    __version__: str

__all__ = [
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


_LATER = {
    "asgi": "statefun.serving.asgi",
    "make_avro_type": "statefun.formats.avro",
    "make_schema_registry_type": "statefun.formats.schema_registry",
    "bootstrap": "statefun.runtime.loading.bootstrap",
    "run": "statefun.runtime.run",
    "state": "statefun.runtime.stored.state_frame",
    "KafkaEgress": "statefun.module.builders",
    "KafkaEgressBuilder": "statefun.module.builders",
    "KafkaIngress": "statefun.module.builders",
    "KafkaIngressBuilder": "statefun.module.builders",
    "KafkaStartupPosition": "statefun.module.builders",
}
"""The module of each name that is imported when it is first used.

These modules need Spark, YAML or an optional package, which programs that only define functions do not need.

``from statefun import *`` includes none of ``run``, ``state`` and ``bootstrap``, since importing them imports Spark.
"""


__compiled__ = is_compiled()
"""Whether the modules that each message goes through run as compiled code."""

__path__.append(f"{__path__[0]}/published")  # the module names of the published package


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that ``import statefun`` does not need Spark."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("statefun")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if Path(__path__[-1], f"{name}.py").exists():
        return importlib.import_module(f"statefun.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER, "__version__"})
