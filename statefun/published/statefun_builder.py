# SPDX-License-Identifier: Apache-2.0
"""``statefun.statefun_builder`` of the published package."""

from __future__ import annotations

from statefun import StatefulFunctions
from statefun.published import warn_of_move
from statefun.sdk.stateful_function import StatefulFunction

__all__ = ["StatefulFunction", "StatefulFunctions"]

warn_of_move(__name__)
