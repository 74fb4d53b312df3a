# SPDX-License-Identifier: Apache-2.0
"""Converts the keys of records to ids of addresses, and explains rejections.

A rejection is a record that no function can receive.
"""

from __future__ import annotations

from typing import Any

from statefun.engine.letters import TARGET_TYPE_HEADER, VALUE_TYPE_HEADER
from statefun.sdk.types import Type

REJECTION_NAMESPACE = "statefun.rejected"
"""The reserved namespace to which rejections are sent; each reason is the name of a reserved function."""
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
    "null-value": "the record has no value (a tombstone), and its topic does not say tombstones: deliver",
}


def rejection(name: str) -> str:
    """Return the explanation why a record was rejected.

    Args:
        name: the name of the reserved function that the rejected record was sent to.
    """
    return _REASONS[name]


def id_of_key(key: bytes, type_: Type[Any] | None) -> bytes:
    """Return the id, encoded in UTF-8, of the address to which a record with a key is sent.

    Args:
        key: the key of the record.
        type_: the type of the topic's keys; the id is the decoded key as text. None if the keys are text already.

    Raises:
        Exception: what the type raises for bytes that it cannot decode.
    """
    id_ = key.decode() if type_ is None else str(type_.serializer().deserialize(key))
    return id_.encode()
