# SPDX-License-Identifier: Apache-2.0
"""``statefun.context`` of the published package."""

from __future__ import annotations

from statefun import Context
from statefun.published import warn_of_move

__all__ = ["Context"]

warn_of_move(__name__)
