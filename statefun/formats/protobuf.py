# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages without generated classes, from a descriptor set that ``protoc`` has written."""

from __future__ import annotations

from functools import lru_cache

import attrs
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from statefun.sdk.errors import DefinitionError
from statefun.sdk.types import SimpleType, simple_type


@attrs.frozen
class _Described:
    descriptor_set: bytes = attrs.field(repr=lambda content: f"{len(content)} bytes")
    message: str

    def serialize(self, value: Message) -> bytes:
        return value.SerializeToString()

    def deserialize(self, content: bytes) -> Message:
        return _message_class(self.descriptor_set, self.message).FromString(content)


def make_described_protobuf_type(
    typename: str, descriptor_set: bytes, message: str
) -> SimpleType[Message]:
    """Make and register a type for a Protobuf message that has no generated class.

    Args:
        typename: ``namespace/name``.
        descriptor_set: the output of ``protoc --include_imports --descriptor_set_out``.
        message: the full name of the message.

    Raises:
        DefinitionError: if the descriptor set does not describe the message, or the typename belongs to
            another type.
    """
    try:
        _message_class(descriptor_set, message)
    except Exception as error:
        raise DefinitionError(
            f"the descriptor set of {typename} does not describe {message}: "
            f"{type(error).__name__}: {error}; write it with protoc --include_imports "
            "--descriptor_set_out"
        ) from error
    described = _Described(descriptor_set, message)
    return simple_type(typename, described.serialize, described.deserialize)


@lru_cache
def _message_class(descriptor_set: bytes, message: str) -> type[Message]:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptor_set).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(message))
