# SPDX-License-Identifier: Apache-2.0
"""A message to an address, as the engine sends it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Row(NamedTuple):
    """A message to an address, as a row of ``MESSAGE_SCHEMA``."""

    target: bytes
    """The key of the address that gets the message."""
    caller: bytes
    """The key of the address that has sent the message."""
    typename: str
    value: Any
    """The encoded value: bytes; None for a message without a value."""
    trace: str | None = None
    event_time: int | None = None
    """The event time, in milliseconds since the epoch; None if the message has none, or does not hold the watermark."""
