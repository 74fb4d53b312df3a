# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.statefun_builder`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import StatefulFunctions
from statefun.published import warn_of_move
from statefun.sdk.stateful_function import StatefulFunction

__all__ = ["StatefulFunction", "StatefulFunctions"]

warn_of_move(__name__)
