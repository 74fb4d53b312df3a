# SPDX-License-Identifier: Apache-2.0
"""The counts of a run, which ``statefun.run`` returns."""

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
    """Records that this run has published, including records that earlier runs left in the outbox.

    They include dead letters of failed messages. They do not include dead letters of refused
    records: a record of a function is either published or ``refused``, never both."""
    skipped: int = 0
    """Messages and records that were skipped, as their failure policy says."""
    dead_letters: int = 0
    """Messages and records that became dead letters in the dead-letter topic."""
    refused: int = 0
    """Records that a cluster has refused for good; they became dead letters or were skipped."""
    retries: int = 0
    """How often a message was postponed for a retry because its function had failed."""
    postponed: int = 0
    """How often a message had to wait because its endpoint could not take it, or because earlier messages
    to its address waited for the endpoint."""
    endpoints_down: int = 0
    """The number of endpoints that cannot be reached at present."""
    restarts: int = 0
    """How often the application has begun another run, since a restart was ordered or a worker was lost."""
    backlog: int = 0
    """The number of messages to functions that are sent and not delivered yet.

    A delayed message counts only until it is stored to wait for its time."""
    passed_by: int = 0
    """How often the watermark has passed a message that had held it for longer than ``maxHold``."""
    future_records: int = 0
    """The number of records that were too far in the future to move the watermark."""
    watermark: datetime | None = None
    """The watermark of the newest micro-batch; None if there is none."""
    calls_under_way: int = 0
    """The number of calls that still go on after their micro-batches have ended."""
    oldest_call: timedelta = _NONE
    """How long the oldest call under way has gone on after its micro-batch; zero if there is none."""
    next_timer: datetime | None = None
    """When the next timer is due, for a delayed message or an expiration; None if no timer waits.

    For a message that waits for minutes or more, the time may be early by up to 1/64 of the wait."""
