# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import Message

from statefun.protocol import kafka_egress_pb2, request_reply_pb2, types_pb2
from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.protocol.request_reply_pb2 import Address, FromFunction, ToFunction, TypedValue
from statefun.protocol.types_pb2 import (
    BooleanWrapper,
    DoubleWrapper,
    FloatWrapper,
    IntWrapper,
    LongWrapper,
    StringWrapper,
)

REQUEST_REPLY = {
    "Address": {"namespace": "1 string", "type": "2 string", "id": "3 string"},
    "TypedValue": {"typename": "1 string", "has_value": "2 bool", "value": "3 bytes"},
    "ToFunction": {"invocation": "100 ToFunction.InvocationBatchRequest in request"},
    "ToFunction.PersistedValue": {"state_name": "1 string", "state_value": "2 TypedValue"},
    "ToFunction.Invocation": {"caller": "1 Address", "argument": "2 TypedValue"},
    "ToFunction.InvocationBatchRequest": {
        "target": "1 Address",
        "state": "2 repeated ToFunction.PersistedValue",
        "invocations": "3 repeated ToFunction.Invocation",
    },
    "FromFunction": {
        "invocation_result": "100 FromFunction.InvocationResponse in response",
        "incomplete_invocation_context": (
            "101 FromFunction.IncompleteInvocationContext in response"
        ),
    },
    "FromFunction.PersistedValueMutation": {
        "mutation_type": ("1 FromFunction.PersistedValueMutation.MutationType DELETE=0 MODIFY=1"),
        "state_name": "2 string",
        "state_value": "3 TypedValue",
    },
    "FromFunction.Invocation": {"target": "1 Address", "argument": "2 TypedValue"},
    "FromFunction.DelayedInvocation": {
        "delay_in_ms": "1 int64",
        "target": "2 Address",
        "argument": "3 TypedValue",
        "is_cancellation_request": "10 bool",
        "cancellation_token": "11 string",
    },
    "FromFunction.EgressMessage": {
        "egress_namespace": "1 string",
        "egress_type": "2 string",
        "argument": "3 TypedValue",
    },
    "FromFunction.InvocationResponse": {
        "state_mutations": "1 repeated FromFunction.PersistedValueMutation",
        "outgoing_messages": "2 repeated FromFunction.Invocation",
        "delayed_invocations": "3 repeated FromFunction.DelayedInvocation",
        "outgoing_egresses": "4 repeated FromFunction.EgressMessage",
    },
    "FromFunction.ExpirationSpec": {
        "mode": ("1 FromFunction.ExpirationSpec.ExpireMode NONE=0 AFTER_WRITE=1 AFTER_INVOKE=2"),
        "expire_after_millis": "2 int64",
    },
    "FromFunction.PersistedValueSpec": {
        "state_name": "1 string",
        "expiration_spec": "2 FromFunction.ExpirationSpec",
        "type_typename": "3 string",
    },
    "FromFunction.IncompleteInvocationContext": {
        "missing_values": "1 repeated FromFunction.PersistedValueSpec"
    },
}

TYPES = {
    "BooleanWrapper": {"value": "1 bool"},
    "IntWrapper": {"value": "1 sfixed32"},
    "FloatWrapper": {"value": "1 float"},
    "LongWrapper": {"value": "1 sfixed64"},
    "DoubleWrapper": {"value": "1 double"},
    "StringWrapper": {"value": "1 string"},
}

KAFKA_EGRESS = {
    "KafkaProducerRecord": {
        "key": "1 string",
        "value_bytes": "2 bytes",
        "topic": "3 string",
        "headers": "16 repeated KafkaProducerRecord.Header",
        "partition": "17 int32 in _partition",
        "timestamp": "18 int64 in _timestamp",
        "tombstone": "19 bool",
    },
    "KafkaProducerRecord.Header": {"key": "1 string", "value": "2 bytes in _value"},
}

SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_SFIXED32: "sfixed32",
    FieldDescriptor.TYPE_SFIXED64: "sfixed64",
    FieldDescriptor.TYPE_STRING: "string",
}


def _local(full_name: str, package: str) -> str:
    assert full_name.startswith(f"{package}.")
    return full_name[len(package) + 1 :]


def _field(field: FieldDescriptor, package: str) -> str:
    """Describe a field in one line: number, type, and what belongs to the type."""
    words = [str(field.number)]
    if field.is_repeated:
        words.append("repeated")
    if field.message_type is not None:
        words.append(_local(field.message_type.full_name, package))
    elif field.enum_type is not None:
        words.append(_local(field.enum_type.full_name, package))
        words += [f"{value.name}={value.number}" for value in field.enum_type.values]
    else:
        words.append(SCALARS[field.type])
    if field.containing_oneof is not None:
        words += ["in", field.containing_oneof.name]
    return " ".join(words)


def _messages(descriptors: list[Descriptor], package: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for descriptor in descriptors:
        found[_local(descriptor.full_name, package)] = {
            field.name: _field(field, package) for field in descriptor.fields
        }
        found |= _messages(list(descriptor.nested_types), package)
    return found


@pytest.mark.parametrize(
    ("file", "package", "expected"),
    [
        (request_reply_pb2.DESCRIPTOR, "io.statefun.sdk.reqreply", REQUEST_REPLY),
        (types_pb2.DESCRIPTOR, "io.statefun.sdk.types", TYPES),
        (kafka_egress_pb2.DESCRIPTOR, "io.statefun.sdk.egress", KAFKA_EGRESS),
    ],
    ids=["request-reply", "types", "kafka-egress"],
)
def test_numbers_and_types_are_those_of_the_protocol(
    file: FileDescriptor, package: str, expected: dict[str, dict[str, str]]
) -> None:
    """Every message, field number and type is pinned: other runtimes depend on them."""
    actual = _messages(list(file.message_types_by_name.values()), package)

    assert file.package == package
    assert actual == expected


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (BooleanWrapper(value=True), b"\x08\x01"),
        (BooleanWrapper(value=False), b""),
        (IntWrapper(value=1), b"\x0d\x01\x00\x00\x00"),
        (IntWrapper(value=-1), b"\x0d\xff\xff\xff\xff"),
        (IntWrapper(value=0), b""),
        (LongWrapper(value=1), b"\x09\x01\x00\x00\x00\x00\x00\x00\x00"),
        (LongWrapper(value=-(2**63)), b"\x09\x00\x00\x00\x00\x00\x00\x00\x80"),
        (LongWrapper(value=0), b""),
        (FloatWrapper(value=1.0), b"\x0d\x00\x00\x80\x3f"),
        (FloatWrapper(value=0.0), b""),
        (DoubleWrapper(value=1.0), b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"),
        (DoubleWrapper(value=0.0), b""),
        (StringWrapper(value="Ada"), b"\x0a\x03Ada"),
        (StringWrapper(value="ü"), b"\x0a\x02\xc3\xbc"),
        (StringWrapper(value=""), b""),
        (Address(namespace="n", type="t", id="i"), b"\x0a\x01n\x12\x01t\x1a\x01i"),
        (TypedValue(typename="t", has_value=True), b"\x0a\x01t\x10\x01"),
        (TypedValue(typename="t", has_value=True, value=b"v"), b"\x0a\x01t\x10\x01\x1a\x01v"),
        (TypedValue(typename="t"), b"\x0a\x01t"),
        (
            KafkaProducerRecord(key="k", value_bytes=b"v", topic="t"),
            b"\x0a\x01k\x12\x01v\x1a\x01t",
        ),
        (KafkaProducerRecord(topic="t"), b"\x1a\x01t"),
        (
            ToFunction(
                invocation=ToFunction.InvocationBatchRequest(
                    target=Address(id="i"),
                    state=[ToFunction.PersistedValue(state_name="s")],
                    invocations=[
                        ToFunction.Invocation(
                            caller=Address(id="c"), argument=TypedValue(has_value=True)
                        )
                    ],
                )
            ),
            # field 100, 21 bytes: target, one state without a value, one invocation from c
            (
                b"\xa2\x06\x15\x0a\x03\x1a\x01i\x12\x03\x0a\x01s"
                b"\x1a\x09\x0a\x03\x1a\x01c\x12\x02\x10\x01"
            ),
        ),
        (FromFunction(invocation_result=FromFunction.InvocationResponse()), b"\xa2\x06\x00"),
        (
            FromFunction(
                incomplete_invocation_context=FromFunction.IncompleteInvocationContext(
                    missing_values=[
                        FromFunction.PersistedValueSpec(
                            state_name="s",
                            expiration_spec=FromFunction.ExpirationSpec(
                                mode=FromFunction.ExpirationSpec.AFTER_INVOKE,
                                expire_after_millis=300,
                            ),
                            type_typename="t",
                        )
                    ]
                )
            ),
            b"\xaa\x06\x0f\x0a\x0d" + b"\x0a\x01s" + b"\x12\x05\x08\x02\x10\xac\x02" + b"\x1a\x01t",
        ),
        (
            FromFunction.PersistedValueMutation(
                mutation_type=FromFunction.PersistedValueMutation.MODIFY,
                state_name="s",
                state_value=TypedValue(value=b"v"),
            ),
            b"\x08\x01\x12\x01s\x1a\x03\x1a\x01v",
        ),
        (
            FromFunction.PersistedValueMutation(
                mutation_type=FromFunction.PersistedValueMutation.DELETE, state_name="s"
            ),
            b"\x12\x01s",
        ),
        (
            FromFunction.DelayedInvocation(
                delay_in_ms=300,
                target=Address(id="i"),
                is_cancellation_request=True,
                cancellation_token="c",  # noqa: S106 - no secret: it names a delayed message
            ),
            b"\x08\xac\x02\x12\x03\x1a\x01i\x50\x01\x5a\x01c",
        ),
        (
            FromFunction.EgressMessage(egress_namespace="n", egress_type="t"),
            b"\x0a\x01n\x12\x01t",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else value.hex() or "-",
)
def test_messages_have_these_bytes(message: Message, wire: bytes) -> None:
    """Bytes written by hand decode as the message, which encodes as the same bytes."""
    decoded = type(message).FromString(wire)

    assert decoded == message
    assert message.SerializeToString(deterministic=True) == wire


def test_an_empty_response_is_valid() -> None:
    """No bytes at all mean: no effects."""
    response = FromFunction.FromString(b"")

    assert response.WhichOneof("response") is None
    assert list(response.invocation_result.state_mutations) == []


def test_fields_of_newer_peers_are_skipped() -> None:
    """Unknown fields do no harm."""
    decoded = IntWrapper.FromString(b"\x0d\x01\x00\x00\x00" + b"\x7a\x01x")

    assert decoded.value == 1
