# SPDX-License-Identifier: Apache-2.0
"""The record of a call that has left its micro-batch, in the state of its address."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from statefun.protocol.runtime_pb2 import AddressState


@attrs.frozen
class UnderWay:
    """A call that goes on while micro-batches are committed."""

    run: str
    """The run of the application that has made the call: calls of earlier runs are made again."""
    attempt: str
    """Names the call: a result counts only if it has this name."""
    messages: Sequence[bytes]
    """The messages of the call, in order, each a ``Retry``."""
    since: int
    """When the call has left its micro-batch, in milliseconds since the epoch."""

    @property
    def size(self) -> int:
        """The bytes of the messages."""
        return sum(map(len, self.messages))

    def put(self, state: AddressState) -> None:
        """Write the record into a state that is to be stored."""
        stored = state.under_way
        stored.run, stored.attempt, stored.since = self.run, self.attempt, self.since
        stored.messages.extend(self.messages)

    @classmethod
    def of(cls, state: AddressState) -> UnderWay | None:
        """Read the record out of a stored state; None if there is none."""
        if not state.HasField("under_way"):
            return None
        stored = state.under_way
        return cls(stored.run, stored.attempt, tuple(stored.messages), stored.since)
