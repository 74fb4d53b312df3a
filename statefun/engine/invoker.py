# SPDX-License-Identifier: Apache-2.0
"""The way in which the engine calls functions; the test kit has a subclass that checks results."""

from __future__ import annotations

from statefun.sdk.context import PrepareMessage
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction


class Invoker:
    """Calls functions."""

    def invoke(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Run a plain function over a batch; see :func:`statefun.sdk.invocation.invoke`."""
        return invoke(function, batch, prepare)

    async def invoke_async(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Run a coroutine function, or a function that a transport invokes, over a batch."""
        return await invoke_async(function, batch, prepare)
