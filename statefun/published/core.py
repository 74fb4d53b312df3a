# SPDX-License-Identifier: Apache-2.0
"""``statefun.core`` of the published package."""

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
        DefinitionError: if it is ill-formed.
    """
    parsed = TypeName.parse(typename)
    return parsed.namespace, parsed.name
