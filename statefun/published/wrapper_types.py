# SPDX-License-Identifier: Apache-2.0
"""``statefun.wrapper_types`` of the published package."""

from __future__ import annotations

from statefun import BoolType, DoubleType, FloatType, IntType, LongType, StringType
from statefun.published import moved

__all__ = ["BoolType", "DoubleType", "FloatType", "IntType", "LongType", "StringType"]

moved(__name__)
