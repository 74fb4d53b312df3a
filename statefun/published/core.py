# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.core`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import SdkAddress, SimpleType, Type, TypeName, TypeSerializer, ValueSpec, simple_type
from statefun.published import warn_of_move

__all__ = [
    "SdkAddress",
    "SimpleType",
    "Type",
    "TypeSerializer",
    "ValueSpec",
    "parse_typename",
    "simple_type",
]

warn_of_move(__name__)


def parse_typename(typename: str) -> tuple[str, str]:
    """Split a typename into namespace and name, as :meth:`~statefun.TypeName.parse` does.

    Raises:
        DefinitionError: if the typename is malformed.
    """
    parsed = TypeName.parse(typename)
    return parsed.namespace, parsed.name
