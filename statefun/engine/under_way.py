# SPDX-License-Identifier: Apache-2.0
"""A call that has left its micro-batch, in the form in which the state of its address holds it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from statefun.protocol.runtime_pb2 import AddressState


@attrs.frozen
class UnderWay:
    """A call that goes on while micro-batches are committed."""

    attempt: str
    """The name of the call: a result or a loss with another name is ignored."""
    messages: Sequence[bytes]
    """The messages of the call, in order, each a serialized ``Retry``."""
    since: int
    """When the call has left its micro-batch, in milliseconds since the epoch."""

    @property
    def size(self) -> int:
        """The size of all messages of the call, in bytes."""
        return sum(map(len, self.messages))

    def put(self, state: AddressState) -> None:
        """Write the call into a state that is to be stored."""
        stored = state.under_way
        stored.attempt, stored.since = self.attempt, self.since
        stored.messages.extend(self.messages)

    @classmethod
    def of(cls, state: AddressState) -> UnderWay | None:
        """Return the call in a stored state; None if the state has none."""
        if not state.HasField("under_way"):
            return None
        stored = state.under_way
        return cls(stored.attempt, tuple(stored.messages), stored.since)
