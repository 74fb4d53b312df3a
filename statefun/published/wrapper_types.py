# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.wrapper_types`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import BoolType, DoubleType, FloatType, IntType, LongType, StringType
from statefun.published import warn_of_move

__all__ = [
    "PY_TYPE_TO_WRAPPER_TYPE",
    "WRAPPER_TYPE_TO_PY_TYPE",
    "BoolType",
    "DoubleType",
    "FloatType",
    "IntType",
    "LongType",
    "StringType",
]

warn_of_move(__name__)

PY_TYPE_TO_WRAPPER_TYPE = {int: IntType, bool: BoolType, float: FloatType, str: StringType}
WRAPPER_TYPE_TO_PY_TYPE = {type_: kind for kind, type_ in PY_TYPE_TO_WRAPPER_TYPE.items()}
