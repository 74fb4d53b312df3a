# SPDX-License-Identifier: Apache-2.0
"""``statefun.context`` of the published package."""

from __future__ import annotations

from statefun import Context
from statefun.published import moved

__all__ = ["Context"]

moved(__name__)
