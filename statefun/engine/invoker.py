# SPDX-License-Identifier: Apache-2.0
"""Calls users' functions for the engine; the test kit has a subclass that checks the results."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from statefun.sdk.context import PrepareMessage
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction


@mypyc_attr(allow_interpreted_subclasses=True)
class Invoker:
    """Calls functions with invocation batches."""

    def invoke(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Call a function that is not awaited with the messages of a batch.

        The function is no coroutine function, and not behind an endpoint. See
        :func:`statefun.sdk.invocation.invoke`.
        """
        return invoke(function, batch, prepare)

    async def invoke_async(
        self, function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
    ) -> InvocationResult:
        """Call a coroutine function, or a function behind an endpoint, with the messages of a batch."""
        return await invoke_async(function, batch, prepare)
