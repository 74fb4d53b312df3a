# SPDX-License-Identifier: Apache-2.0
"""Decodes the states of many addresses of one function to rows with a column for each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from statefun.engine.clock import SystemClock
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.stored.known_values import Secrets
from statefun.runtime.stored.typed_values import ValueDecoder
from statefun.sdk.types import Type

UNDECODED = "undecoded"
"""The column with the stored bytes of values that have no column, do not decode as their column's type, or are not
exactly what their column shows."""
UNDECODED_TYPE = pa.map_(
    pa.string(),
    pa.struct([("typename", pa.string()), ("value", pa.binary()), ("reason", pa.string())]),
)

TypedColumns = Mapping[str, tuple[str, Type[Any] | None]]
"""The name and the type of the value in each column, by the column's name; None for an unknown type."""


def row_type(columns: TypedColumns) -> pa.StructType:
    """Return the type of the rows: the columns, and :data:`UNDECODED`."""
    fields = [(name, ValueDecoder(type_).column.type) for name, (_, type_) in columns.items()]
    return pa.struct([*fields, (UNDECODED, UNDECODED_TYPE)])


def decoded_states(
    columns: TypedColumns,
    states: Sequence[bytes],
    present_names: Mapping[str, str],
    secrets: Secrets,
) -> pa.StructArray:
    """Decode states to rows of :func:`row_type`; values that have expired are null.

    Args:
        columns: the columns.
        states: the states of the addresses.
        present_names: the present names of values that were renamed, by their former names.
        secrets: which values are left out.
    """
    now = SystemClock().now()
    decoders = {name: ValueDecoder(type_) for name, type_ in columns.values()}
    decoded: dict[str, list[Any]] = {name: [None] * len(states) for name in decoders}
    undecoded: list[list[tuple[str, dict[str, Any]]] | None] = [None] * len(states)
    for index, state in enumerate(states):
        for value in AddressState.FromString(state).values:
            if 0 < value.expires <= now or secrets.hides(value.name, value.typename):
                continue
            name = present_names.get(value.name, value.name)
            decoder = decoders.get(name)
            problem: str | None = "the function does not declare it"
            if decoder is not None:
                result = decoder.decode(value.typename, value.value)
                problem = result.problem
                if problem is None:
                    decoded[name][index] = result.value
                    problem = decoder.loss(result.value, value.typename, value.value)
                if problem is None:
                    continue
            entry = {"typename": value.typename, "value": value.value, "reason": problem}
            undecoded[index] = [*(undecoded[index] or ()), (value.name, entry)]
    arrays = [pa.array(decoded[name], decoders[name].column.type) for name in decoders]
    return pa.StructArray.from_arrays(
        [*arrays, pa.array(undecoded, UNDECODED_TYPE)], fields=list(row_type(columns))
    )
