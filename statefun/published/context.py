# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.context`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import Context
from statefun.published import warn_of_move

__all__ = ["Context"]

warn_of_move(__name__)
