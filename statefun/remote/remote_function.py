# SPDX-License-Identifier: Apache-2.0
"""The functions behind an endpoint, as one transport of the invocation batch.

A server may go down because of a message that it was sent, or by chance. An address is a suspect when the
server went down during requests with its messages several times in a row: it is called in its turn only,
with one message at a time, while nothing else is called on that server. If the server goes down in each
of these turns, the message is the cause.
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
"""After how many outages in a row during requests of an address the address is a suspect."""
_AFTER_TURN = timedelta(milliseconds=100)
"""How long the other addresses wait for the end of a micro-batch that is one address's turn."""
_UNTIL_TURN = timedelta(seconds=1)
"""How long a suspect waits before it asks for its turn again."""


class RemoteFunctions:
    """The transport of an endpoint. It travels to the workers; each process has its own connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.client = EndpointClient(endpoint)

    def __reduce__(self) -> tuple[type[RemoteFunctions], tuple[Endpoint]]:
        return RemoteFunctions, (self.client.endpoint,)

    async def invoke(
        self, batch: InvocationBatch, prepare: PrepareMessage | None
    ) -> InvocationResult:
        """Send a batch to its function; see :class:`~statefun.sdk.invocation_batch.Transport`."""
        return await BatchRun(self.client, batch, prepare).run()

    async def admit(self, target: Address, trouble: Trouble, turn: Turn | None) -> Postponed | None:
        """Return why messages have to wait, or None; see ``Transport``."""
        try:
            url, server = self.client.url_of(target), self.client.server_of(target)
        except EndpointError:
            return None  # the call will fail each message with this error
        is_alone = turn is not None and turn.address == target
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

    def take_circuit_reports(self) -> list[CircuitReport]:
        """Return what calls have found out about the endpoint's servers; see ``Transport``."""
        return self.client.take_circuit_reports()
