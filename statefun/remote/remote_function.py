# SPDX-License-Identifier: Apache-2.0
"""Sends invocation batches to the functions behind an endpoint.

A server may go down because of a message that it gets, or by chance. If the server went down several times in
a row during requests with messages of one address, that address is a suspect: it is called in its turn only,
with one message at a time, while the server is called for no other address. If the server goes down in
each of these turns, the message is the cause, and fails.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from statefun.module.model import Endpoint
from statefun.remote.batch_run import BatchRun
from statefun.remote.circuit import EndpointDownError
from statefun.remote.endpoint_client import EndpointClient
from statefun.remote.exchange import request_of
from statefun.sdk.address import Address
from statefun.sdk.context import PrepareMessage
from statefun.sdk.errors import EndpointError
from statefun.sdk.invocation_batch import (
    CircuitReport,
    InvocationBatch,
    InvocationResult,
    Postponed,
    Trouble,
    Turn,
)

_MOST_OUTAGES = 5
"""An address is a suspect after this many outages in a row during requests with its messages."""
_AFTER_TURN = timedelta(milliseconds=100)
"""How long other addresses wait if their server is called for a suspect alone in a micro-batch."""
_UNTIL_TURN = timedelta(seconds=1)
"""How long a suspect waits before it asks again for its turn, in which it is called alone."""


class RemoteFunctions:
    """The transport of an endpoint. It can be pickled; each worker process has its own connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client = EndpointClient(endpoint)

    def __reduce__(self) -> tuple[type[RemoteFunctions], tuple[Endpoint]]:
        return RemoteFunctions, (self.client.endpoint,)

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Send a batch to its function, and return the effects; see the protocol ``Transport``."""
        return await BatchRun(self.client, batch, prepare).run()

    async def admit(self, target: Address, trouble: Trouble, turn: Turn | None) -> Postponed | None:
        """Return why the messages of an address have to wait, or None; see the protocol ``Transport``.

        Args:
            target: the address.
            trouble: the failed attempts to call the address in earlier micro-batches.
            turn: the suspect that is called alone in this micro-batch, and its server; None if there is none.
        """
        try:
            url, server = self.client.url_of(target), self.client.server_of(target)
        except EndpointError:
            return None  # the call will fail each message with this error
        is_alone = turn is not None and turn.is_of(target)
        if turn is not None and turn.server == server and not is_alone:
            return Postponed(0, _AFTER_TURN)
        is_suspect = trouble.outages >= _MOST_OUTAGES
        if is_suspect and not is_alone:
            return Postponed(0, _UNTIL_TURN, suspect_of=server)
        try:
            empty = partial(request_of, target, {}, {}, ())
            await self.client.caller().admit(url, empty, is_asked=is_suspect)
        except EndpointDownError as down:
            return Postponed(0, down.wait, is_down=True)
        return None

    def server_of(self, target: Address) -> str:
        """Return the server that is called for an address; empty if its URL cannot be built."""
        try:
            return self.client.server_of(target)
        except EndpointError:
            return ""

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return the new reports about servers that went down, or can be reached again; see ``Transport``."""
        return self.client.take_circuit_reports()
