# SPDX-License-Identifier: Apache-2.0
"""Runs the calls that have to be awaited: of coroutine functions, and of functions behind endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from statefun.engine.calls import Call
from statefun.engine.effects import Effects
from statefun.engine.left_calls import LeftCalls
from statefun.engine.running_calls import RunningCall
from statefun.engine.transports import CallOutcome, PendingCall, TransportCalls
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction


class AwaitedCalls:
    """Runs the calls of one task that have to be awaited.

    Args:
        left: the calls that leave their micro-batch.
        transports: the calls of functions behind endpoints.
        invoke: calls a function with an invocation batch.
        deserialized: returns a call with decoded records; None if no message remains.
        batch_for: returns the batch of a call with the present names of callers, and with transformed topics.
    """

    def __init__(
        self,
        left: LeftCalls,
        transports: TransportCalls,
        invoke: Callable[[StatefulFunction, InvocationBatch], Awaitable[InvocationResult]],
        deserialized: Callable[[Call, Effects], Call | None],
        batch_for: Callable[[Call], InvocationBatch],
    ) -> None:
        self._left = left
        self._transports = transports
        self._invoke = invoke
        self._deserialized = deserialized
        self._batch_for = batch_for

    async def run(
        self, call: Call | PendingCall, effects: Effects, running: RunningCall
    ) -> CallOutcome:
        """Run a call of a coroutine function, or of a function behind an endpoint.

        Messages to an endpoint are decoded only after its transport has admitted the call.
        """
        if isinstance(call, PendingCall):
            postponed = await self._transports.admit(call)
            if postponed is not None:
                return postponed
            if not (call.rows or call.group.values.waiting):
                return None  # all messages are in chunks, which have not returned them yet
            self._transports.resume(call.group)
            ready = self._deserialized(call.decoded(), effects)
            if ready is None:
                return None
            call = ready
        run = self._left.run(call, self._batch_for(call), self._invoke, running)
        del call, effects  # a call that has left its micro-batch would keep all rows of the task
        return await run
