# SPDX-License-Identifier: Apache-2.0
"""Calls functions behind endpoints repeatedly; on Spark, the repeated calls are in later micro-batches."""

from __future__ import annotations

import asyncio

from statefun.sdk.context import PrepareMessage
from statefun.sdk.invocation import invoke_async
from statefun.sdk.invocation_batch import (
    FailedInvocation,
    InvocationBatch,
    InvocationResult,
    Turn,
)
from statefun.sdk.stateful_function import StatefulFunction


async def call_until_answered(
    function: StatefulFunction, batch: InvocationBatch, prepare: PrepareMessage
) -> InvocationResult:
    """Call a function until all messages of the batch are handled, or its endpoint cannot be reached."""
    whole = await invoke_async(function, batch, prepare)
    while (later := whole.postponed) is not None and not later.is_down:
        await asyncio.sleep(later.wait.total_seconds())
        done = later.first
        rest = _rest(batch, whole, done)
        refused = await function.elsewhere.admit(batch.target, rest.trouble, None)
        if refused is not None and refused.suspect_of:
            turn = Turn(batch.target, refused.suspect_of)
            refused = await function.elsewhere.admit(batch.target, rest.trouble, turn)
            rest = rest._replace(is_alone=True)
        if refused is not None:
            return whole._replace(postponed=refused._replace(first=done))
        whole = _joined(whole, await invoke_async(function, rest, prepare), done)
    return whole


def _rest(batch: InvocationBatch, whole: InvocationResult, done: int) -> InvocationBatch:
    state = {**batch.state, **whole.state_mutations}
    return batch._replace(
        state={name: value for name, value in state.items() if value is not None},
        invocations=batch.invocations[done:],
        trouble=whole.trouble,
    )


def _joined(first: InvocationResult, then: InvocationResult, done: int) -> InvocationResult:
    failures = [
        FailedInvocation(done + each.index, each.error, each.cause, each.traceback)
        for each in then.failures
    ]
    later = then.postponed
    return then._replace(
        state_mutations={**first.state_mutations, **then.state_mutations},
        messages=[*first.messages, *then.messages],
        delayed=[*first.delayed, *then.delayed],
        egress_messages=[*first.egress_messages, *then.egress_messages],
        failures=[*first.failures, *failures],
        postponed=None if later is None else later._replace(first=done + later.first),
    )
