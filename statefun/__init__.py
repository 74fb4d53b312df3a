# SPDX-License-Identifier: Apache-2.0
"""Stateful functions for Python on Apache Spark: addressable, durable, messaging.

Everything public is here; modules below are private to the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statefun.sdk.address import Address, TypeName
from statefun.sdk.address import Address as SdkAddress
from statefun.sdk.context import Context
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage, kafka_egress_message
from statefun.sdk.errors import (
    BindingError,
    CheckpointError,
    ConfigurationError,
    DefinitionError,
    EngineError,
    FunctionError,
    InvocationError,
    KafkaError,
    ModuleError,
    PlatformError,
    RecordError,
    StateDecodeError,
    StatefunError,
    TopicError,
    UnknownEgressError,
    UnknownFunctionError,
    ValueDecodeError,
)
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.functions import StatefulFunctions, function
from statefun.sdk.message import Message, message_builder
from statefun.sdk.record import IngressRecord
from statefun.sdk.storage import ValueSpec
from statefun.sdk.types import (
    BoolType,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    SimpleType,
    StringType,
    Type,
    TypedValue,
    TypeRegistry,
    TypeSerializer,
    make_json_type,
    make_protobuf_type,
    simple_type,
)

if TYPE_CHECKING:
    from statefun.runtime.run import run

__all__ = [
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
    "KafkaEgressMessage",
    "KafkaError",
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
    "function",
    "kafka_egress_message",
    "make_json_type",
    "make_protobuf_type",
    "message_builder",
    "run",
    "simple_type",
]


def __getattr__(name: str) -> Any:
    """Import ``run``, and with it Spark, when it is asked for: functions do without."""
    if name == "run":
        from statefun.runtime.run import run  # noqa: PLC0415 - see above

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
