# SPDX-License-Identifier: Apache-2.0
"""A message to an address, as the engine sends it."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A message to an address, as a row of ``MESSAGE_SCHEMA``."""

    target: bytes
    """The key of the address that gets the message."""
    caller: bytes
    """The key of the address that has sent the message."""
    typename: str
    value: bytes
    trace: str | None = None
