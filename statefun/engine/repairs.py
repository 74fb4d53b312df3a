# SPDX-License-Identifier: Apache-2.0
"""Repairs: a person sets or deletes values of an address; each change is a message to the address.

A repair comes before all other messages of its micro-batch, and calls no function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from statefun.engine.groups import OWN_PREFIX, Group, own_value
from statefun.protocol.runtime_pb2 import AddressState
from statefun.sdk.types import TypedValue

_NAMESPACE: Final = f"{OWN_PREFIX}repairs"
SET: Final = f"{_NAMESPACE}/set"
"""The type of a message that sets a value of its target; its value is an ``AddressState.Value``."""
DELETE: Final = f"{_NAMESPACE}/delete"
"""The type of a message that deletes a value of its target; its value is the name, in UTF-8."""
CHANGES: Final = frozenset({SET, DELETE})
"""The types of all repairs."""


def repair(group: Group, rows: Sequence[int]) -> Sequence[int]:
    """Apply the repairs among a group's rows to the values of its address, in order; return the other rows.

    Raises:
        CheckpointError: if a repair is damaged.
    """
    others = []
    for row in rows:
        typename, content = group.columns.typename[row], group.columns.value[row]
        if typename == SET:
            value = own_value(group.key, typename, content, AddressState.Value.FromString)
            typed = TypedValue(value.typename, value.value)
            group.values.put(value.name, typed, value.expires)
        elif typename == DELETE:
            name = own_value(group.key, typename, content, bytes.decode)
            group.values.apply({name: None})
        else:
            others.append(row)
    return others
