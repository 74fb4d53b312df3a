# SPDX-License-Identifier: Apache-2.0
"""Invokes one address with a batch of messages: the only implementation of an invocation.

The engine, the server of the request-reply protocol and the test kit use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Final

from statefun.sdk.call_context import begin_message, end_context
from statefun.sdk.call_failures import failed_invocation, timeout_error
from statefun.sdk.callables import refuse_coroutine
from statefun.sdk.context import Context, PrepareMessage
from statefun.sdk.current import current_address
from statefun.sdk.deadline import Alarm, CallTimeoutError
from statefun.sdk.failure import OnFailure
from statefun.sdk.invocation_batch import (
    NO_TROUBLE,
    FailedInvocation,
    Invocation,
    InvocationBatch,
    InvocationResult,
    Postponed,
    Transport,
)
from statefun.sdk.message import Message, ReceivedMessage
from statefun.sdk.sent import Sent
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import TypedValue
from statefun.sdk.values import Values
from statefun.sdk.watchdog import Stretch, finished, finished_here

# Compiled code finds a constant at once, but an imported name in a dictionary.
_make_message: Final = ReceivedMessage
_make_result: Final = partial(tuple.__new__, InvocationResult)
_NOTHING_SENT: Final = Sent().counts()
_NOTHING_CHANGED: Final[Mapping[str, TypedValue | None]] = MappingProxyType({})


def invoke(
    function: StatefulFunction,
    batch: InvocationBatch,
    prepare: PrepareMessage | None = None,
    *,
    served: bool = False,
) -> InvocationResult:
    """Call a plain function with each message of a batch, one after another; return the effects.

    Args:
        function: the function.
        batch: the messages, and the state of their address.
        prepare: checks and converts each message and record before it is sent; None to send all as they are.
        served: whether a server calls the function on behalf of a remote runtime. Then the function's
            first exception ends the batch, and is raised. If the function's failure policy is to skip
            messages, only an exception that is no ``Exception``, such as SystemExit, does so.
    """
    run = _Run(function, batch, prepare, served=served)
    call, context, watch = function.call, run.context, batch.watch
    try:
        with Alarm(function.timeout, batch.target) as alarm:
            current_address.set(batch.target)
            for index, invocation in enumerate(batch.invocations):
                if watch is not None:
                    watch.begin(index)
                message = run.begin(index, invocation)
                try:
                    try:
                        alarm.begin()
                        returned = call(context, message)
                        if returned is not None:
                            refuse_coroutine(returned)
                    finally:
                        alarm.end()
                except BaseException as error:  # noqa: BLE001 - users' code may raise any exception
                    alarm.end()  # an interruption may have skipped the call in ``finally``
                    run.take_back(index, error)
            if watch is not None:
                watch.end()
            current_address.set(None)
        return run.result()
    finally:
        end_context(context)


async def invoke_async(
    function: StatefulFunction,
    batch: InvocationBatch,
    prepare: PrepareMessage | None = None,
    *,
    served: bool = False,
) -> InvocationResult:
    """Call a coroutine function with the messages of a batch, as :func:`invoke` calls a plain one.

    A function behind an endpoint is called by its transport. A coroutine runs in a task of its own or, if
    ``served`` is set, in the task that awaits this function.
    """
    watch = batch.watch
    if function.transport is not None:
        return await _invoke_elsewhere(function.transport, batch, prepare)
    current_address.set(batch.target)  # of this task alone
    run = _Run(function, batch, prepare, served=served)
    stretch = Stretch(function.timeout, batch.target) if served else None
    is_over = batch.is_over
    try:
        for index, invocation in enumerate(batch.invocations):
            if is_over is not None and index and is_over():
                return run.result(Postponed(index, timedelta(0)))
            if watch is not None:
                watch.begin(index)
            message = run.begin_apart(index, invocation)
            call = _call_async(function, run.context, message)
            try:
                if stretch is None:
                    error = await finished(call, function.timeout, batch.target)
                else:
                    error = await finished_here(call, stretch)
            except CallTimeoutError as still_running:
                error = still_running
            except BaseException:
                end_context(run.context)
                raise
            run.end_apart(index, error)
    finally:
        if watch is not None:
            watch.end()
        if stretch is not None:
            stretch.end()
    return run.result()


async def _invoke_elsewhere(
    transport: Transport, batch: InvocationBatch, prepare: PrepareMessage | None
) -> InvocationResult:
    """Call a function behind an endpoint; the batch's watch sees the whole batch as one message."""
    watch = batch.watch
    if watch is None:
        return await transport.invoke(batch, prepare)
    watch.begin(0)
    try:
        return await transport.invoke(batch, prepare)
    finally:
        watch.end()


async def _call_async(
    function: StatefulFunction, context: Context, message: Message
) -> BaseException | None:
    """Call a coroutine function with a message; return the exception that it has raised, or None."""
    try:
        await function.call(context, message)
    except BaseException as error:  # noqa: BLE001 - users' code may raise any exception
        return error
    return None


class _Run:
    """Handles the invocations of a batch, and drops the effects of failed ones.

    Plain functions are called one after the other, so that all invocations share one context. What a coroutine
    function has begun may go on after its invocation has ended. So each of its invocations has a context of its own,
    whose effects join those of the batch when it succeeds.
    """

    __slots__ = (
        "_changes_before",
        "_counts_before",
        "_failures",
        "_function",
        "_prepare",
        "_record",
        "_sent",
        "_served",
        "_target",
        "_times",
        "_values",
        "_watermark",
        "context",
    )

    def __init__(
        self,
        function: StatefulFunction,
        batch: InvocationBatch,
        prepare: PrepareMessage | None,
        *,
        served: bool,
    ) -> None:
        self._served = served
        self._function = function
        self._target = batch.target
        self._record = batch.record
        self._times = batch.times
        self._watermark = batch.watermark
        self._prepare = prepare
        self._sent = Sent()
        self._values = Values(function.specs, batch.state)
        self.context = self._new_context(self._values, self._sent)
        self._failures: list[FailedInvocation] = []
        self._counts_before = _NOTHING_SENT
        self._changes_before: Mapping[str, TypedValue | None] = _NOTHING_CHANGED
        if function.renamed_values:
            self._values.rename(function.renamed_values)
            self._changes_before = self._values.changed.copy()

    def begin(self, index: int, invocation: Invocation) -> Message:
        """Prepare the shared context for the next message, and return the message."""
        if index:
            self._counts_before = self._sent.counts()
            self._changes_before = self._values.changed.copy()
        return self._begin(index, invocation)

    def begin_apart(self, index: int, invocation: Invocation) -> Message:
        """Make a context for the next message alone, and return the message."""
        self.context = self._new_context(self._values.copy(), Sent())
        return self._begin(index, invocation)

    def _begin(self, index: int, invocation: Invocation) -> Message:
        caller, argument, trace = invocation
        message = _make_message(self._target, argument, self._record, index)
        event_time = None if self._times is None else self._times[index]
        begin_message(self.context, message, caller, trace, event_time)
        return message

    def _new_context(self, values: Values, sent: Sent) -> Context:
        return Context(
            self._target,
            values,
            sent,
            self._prepare,
            self._watermark,
            has_event_times=self._times is not None,
        )

    def take_back(self, index: int, error: BaseException) -> None:
        """Drop the effects of the present invocation, which has failed in the shared context."""
        self._fail(index, error)
        self._sent.take_back(self._counts_before)
        self._values.restore(self._changes_before)

    def end_apart(self, index: int, error: BaseException | None) -> None:
        """End the context of the present invocation; keep the effects unless the invocation has failed."""
        sent = self.context._sent  # noqa: SLF001 - no part of the API
        changed = self.context._values.changed  # noqa: SLF001 - as above
        end_context(self.context)
        if error is not None:
            self._fail(index, error)
            return
        self._sent.add(sent)
        self._values.restore(changed)  # a copy, as a thread may just be changing the original

    def _fail(self, index: int, error: BaseException) -> None:
        if self._served:
            if type(error) is CallTimeoutError:
                error = timeout_error(self._function)
            if self._function.on_failure is not OnFailure.SKIP or not isinstance(error, Exception):
                raise error
        self._failures.append(failed_invocation(self._function, self._target, index, error))

    def result(self, postponed: Postponed | None = None) -> InvocationResult:
        """Return the effects of all invocations."""
        sent = self._sent
        parts = (
            self._values.changed,
            sent.messages,
            sent.delayed,
            sent.egress_messages,
            self._failures,
            self._function.expiring,
            postponed,
            NO_TROUBLE,
            sent.wake_ups,
        )
        return _make_result(parts)
