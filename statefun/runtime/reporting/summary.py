# SPDX-License-Identifier: Apache-2.0
"""The counts of a run."""

from __future__ import annotations

from datetime import datetime, timedelta

import attrs

_NONE = timedelta(0)


@attrs.define
class Summary:
    """The counts of a run."""

    batches: int = 0
    invocations: int = 0
    egress_records: int = 0
    """Records published by this run, including records that an earlier run left in the outbox.

    They include dead letters of failed messages. They do not include dead letters of refused
    records: a record of a function is either published or ``refused``, never both.
    """
    skipped: int = 0
    """Messages and records that were left out, as their failure policy says."""
    dead_letters: int = 0
    """Messages and records that went to the dead-letter topic."""
    refused: int = 0
    """Records that a cluster has refused for good; they are dead letters or left out."""
    retries: int = 0
    """How often a message was put off for a retry because its function failed."""
    postponed: int = 0
    """How often a message had to wait: its endpoint could not take it yet, or earlier messages to its
    address waited for the endpoint."""
    endpoints_down: int = 0
    """The number of endpoints that cannot be reached at present."""
    backlog: int = 0
    """Messages between functions, and to timers, that are under way at present."""
    calls_under_way: int = 0
    """Calls that go on outside of micro-batches at present."""
    oldest_call: timedelta = _NONE
    """How long ago the oldest of them has left its micro-batch."""
    next_timer: datetime | None = None
    """When the next timer is due, for a delayed message or an expiration; None without timers.

    For a message that waits for minutes or more, it is a little before: 1/64 of the wait at most."""
