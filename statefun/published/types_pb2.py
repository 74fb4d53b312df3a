# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.types_pb2`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun.protocol.types_pb2 import (
    BooleanWrapper,
    DoubleWrapper,
    FloatWrapper,
    IntWrapper,
    LongWrapper,
    StringWrapper,
)
from statefun.published import warn_of_move

__all__ = [
    "BooleanWrapper",
    "DoubleWrapper",
    "FloatWrapper",
    "IntWrapper",
    "LongWrapper",
    "StringWrapper",
]

warn_of_move(__name__, "statefun.protocol.types_pb2")
