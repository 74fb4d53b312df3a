# SPDX-License-Identifier: Apache-2.0
"""From the key of a record to the id of an address."""

from __future__ import annotations

from typing import Any

from statefun.sdk.types import Type


def id_of_key(key: bytes, type_: Type[Any] | None) -> bytes:
    """Return the id that a key stands for.

    Args:
        key: of a record.
        type_: of the topic's keys, whose values as text are the ids; None if keys are texts.

    Raises:
        Exception: whatever the type raises if the key is not one of its own.
    """
    id_ = key.decode() if type_ is None else str(type_.serializer().deserialize(key))
    return id_.encode()
