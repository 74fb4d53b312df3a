# SPDX-License-Identifier: Apache-2.0
"""Finds the type of the value that a function gets, in a message that the engine may have wrapped."""

from __future__ import annotations

from statefun.engine.buckets import RELEASED
from statefun.engine.failures import RETRY
from statefun.protocol.runtime_pb2 import DelayedMessage, Retry


def value_type(typename: str, value: bytes | None) -> str:
    """Return the typename of the value that the function of a message gets; empty for a message without a value.

    Args:
        typename: the typename of the message in the outbox or in a bucket of delayed messages.
        value: its value, which may contain the message that the function gets.
    """
    if value is None:
        return ""
    if typename == RELEASED:
        entry = DelayedMessage.FromString(value)
        return value_type(entry.typename, entry.value)
    return type_of_waiting(value) if typename == RETRY else typename


def type_of_waiting(message: bytes) -> str:
    """Return the typename of the value of a waiting message, a serialized ``Retry``; empty if it has no value."""
    retry = Retry.FromString(message)
    return retry.typename if retry.HasField("value") else ""
