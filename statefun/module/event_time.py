# SPDX-License-Identifier: Apache-2.0
"""The settings of event time, which an ingress declares with the key ``eventTime``."""

from __future__ import annotations

from datetime import timedelta

import attrs


@attrs.frozen
class EventTime:
    """How the records of an ingress get their event times, and how these move the watermark."""

    field: tuple[str, ...] = ()
    """The path to the field of a record's value that has the event time; empty for the record's timestamp."""
    out_of_order: timedelta = timedelta(seconds=5)
    """By how much a record may be older than the newest record of its partition without being late."""
    idle: timedelta = timedelta(seconds=30)
    """How long a partition must have been read to its end until the watermark no longer waits for it."""
    max_future: timedelta = timedelta(minutes=5)
    """How far a record may be ahead of the clock; a record further ahead does not move the watermark."""
    max_hold: timedelta = timedelta(minutes=10)
    """How long messages between functions can keep the watermark from rising at all."""
    follows: bool = False
    """Whether the watermark follows the clock while all partitions are idle; otherwise it does not rise."""
