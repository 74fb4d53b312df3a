# SPDX-License-Identifier: Apache-2.0
"""The address whose function is called at present, for log records."""

from __future__ import annotations

from contextvars import ContextVar

from statefun.sdk.address import Address

current_address: ContextVar[Address | None] = ContextVar("current_address", default=None)
"""The address whose function this thread or task calls; None outside of calls."""
