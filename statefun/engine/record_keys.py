# SPDX-License-Identifier: Apache-2.0
"""Converts keys of records to ids of addresses, and explains why no function can receive a record."""

from __future__ import annotations

from typing import Any

from statefun.engine.letters import TARGET_TYPE_HEADER, VALUE_TYPE_HEADER
from statefun.sdk.types import Type

REJECTION_NAMESPACE = "statefun.rejected"
"""The reserved namespace for records that no function can receive; each reason has a function type."""
UNDECODABLE_KEY = "undecodable-key"
UNTRANSFORMABLE = "untransformable"
NULL_KEY = "null-key"
_REASONS = {
    NULL_KEY: "the record has no key; the key becomes the id of the address it is sent to",
    "empty-key": "the record's key is empty; the key becomes the id of the address it is sent to",
    UNDECODABLE_KEY: "the record's key is not valid UTF-8, which the id of an address has to be, or "
    "is not of the topic's keyType",
    UNTRANSFORMABLE: "the transforms of the record's topic cannot take it",
    "no-target": f"the record was to be replayed, and its headers {TARGET_TYPE_HEADER} and "
    f"{VALUE_TYPE_HEADER} do not name the target function and the type of the value",
    "null-value": "the record has no value (a tombstone), and functions are invoked with values",
}


def rejection(name: str) -> str:
    """Explain why a record was rejected.

    Args:
        name: the name of the reserved function that the record was sent to instead.
    """
    return _REASONS[name]


def id_of_key(key: bytes, type_: Type[Any] | None) -> bytes:
    """Return the id that a key stands for.

    Args:
        key: the key of a record.
        type_: the type of the topic's keys, whose values as text are the ids; None if keys are texts.

    Raises:
        Exception: whatever the type raises if the key is not one of its own.
    """
    id_ = key.decode() if type_ is None else str(type_.serializer().deserialize(key))
    return id_.encode()
