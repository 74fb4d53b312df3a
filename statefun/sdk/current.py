# SPDX-License-Identifier: Apache-2.0
"""Remembers the address whose function is called at present, so that log records can name it."""

from __future__ import annotations

from contextvars import ContextVar

from statefun.sdk.address import Address

current_address: ContextVar[Address | None] = ContextVar("current_address", default=None)
"""The address whose function this thread or task calls; None outside of calls."""
