# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.storage`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from statefun import TypedValue, ValueSpec
from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.published import warn_of_move
from statefun.sdk.stateful_function import StorageSpec
from statefun.sdk.storage import Storage
from statefun.sdk.value_spec import value_specs
from statefun.sdk.values import Values

__all__ = [
    "Resolution",
    "StorageSpec",
    "ValueSpec",
    "make_address_storage_spec",
    "resolve",
]

warn_of_move(__name__)


class Resolution(NamedTuple):
    """The values of an address, or else the specs of the values that the runtime has not sent."""

    missing_specs: list[ValueSpec] | None
    storage: Storage | None


def make_address_storage_spec(specs: Sequence[ValueSpec]) -> StorageSpec:
    """Return the declared values of a function as one StorageSpec.

    Raises:
        DefinitionError: if a name occurs twice.
    """
    return StorageSpec.of(value_specs(specs))


def resolve(
    storage: StorageSpec,
    typename: str,  # noqa: ARG001 - a parameter of the published function
    values: Iterable[ToFunction.PersistedValue],
) -> Resolution:
    """Return the values of an address that the runtime has sent, or the specs of the missing values.

    Args:
        storage: the declared values of the function.
        typename: the typename of the function, which is not used.
        values: the values in the form in which the runtime sends them.
    """
    sent = {each.state_name: each.state_value for each in values}
    missing = [spec for spec in storage.specs if spec.name not in sent]
    if missing:
        return Resolution(missing, None)
    present = {
        name: TypedValue(value.typename, value.value)
        for name, value in sent.items()
        if value.has_value
    }
    return Resolution(None, Storage(Values(value_specs(storage.specs), present)))
