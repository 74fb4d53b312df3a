# SPDX-License-Identifier: Apache-2.0
"""Invoking one address with a batch of messages: the one meaning of "invoke" there is.

The two values mirror the request-reply protocol's ``InvocationBatchRequest`` and
``InvocationResponse``: whoever runs functions, in process or behind bytes, goes through here.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import attrs

from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation, Check, Context, DelayedMessage, turn_to
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import FunctionError, InvocationError
from statefun.sdk.functions import StatefulFunction
from statefun.sdk.message import Message
from statefun.sdk.record import IngressRecord
from statefun.sdk.storage import Storage, changes, restore
from statefun.sdk.types import TypedValue


class Invocation(NamedTuple):
    """One message for the target of a batch."""

    caller: Address | None
    argument: TypedValue
    trace: str | None = None
    """The trace-context headers that it carries, 'name=value', a line each."""


class InvocationBatch(NamedTuple):
    """All messages for one address, in order, with the state that it has before them."""

    target: Address
    state: Mapping[str, TypedValue]
    invocations: Sequence[Invocation]
    record: Callable[[int], IngressRecord | None] | None = None
    """Looks up the ingress record of one of the invocations, by its place; None: there are none."""


@attrs.frozen
class FailedInvocation:
    """An invocation that raised. It has left no trace: all its effects were taken back."""

    index: int
    """Which one of the batch."""
    error: InvocationError
    cause: str
    """The name of the class of what was raised."""
    traceback: str
    """What Python would have printed."""


class InvocationResult(NamedTuple):
    """The effects of a batch."""

    state_mutations: Mapping[str, TypedValue | None]
    """New values by name; None deletes."""
    messages: Sequence[Message]
    """Messages to functions, in the order they were sent."""
    delayed: Sequence[DelayedMessage | Cancellation]
    """Messages to functions with a delay, and cancellations of such, in order."""
    egress_messages: Sequence[EgressMessage]
    """Records for egresses, in the order they were sent."""
    failures: Sequence[FailedInvocation]
    """What has failed; everything else is as if these messages had never come."""


def invoke(
    function: StatefulFunction, batch: InvocationBatch, check: Check | None = None
) -> InvocationResult:
    """Run a plain function over a batch, one message after the other."""
    run = _Run(function, batch, check)
    call = function.call
    for index, invocation in enumerate(batch.invocations):
        message = run.begin(index, invocation)
        try:
            call(run.context, message)
        except Exception as error:  # noqa: BLE001 - what users' code raises is theirs to choose
            run.take_back(index, error)
    return run.result()


async def invoke_async(
    function: StatefulFunction, batch: InvocationBatch, check: Check | None = None
) -> InvocationResult:
    """Run a coroutine function over a batch, one message after the other."""
    run = _Run(function, batch, check)
    call = function.call
    for index, invocation in enumerate(batch.invocations):
        message = run.begin(index, invocation)
        try:
            await call(run.context, message)
        except Exception as error:  # noqa: BLE001 - what users' code raises is theirs to choose
            run.take_back(index, error)
    return run.result()


class _Run:
    """The invocations of a batch: they share a context, which forgets those that fail."""

    def __init__(
        self, function: StatefulFunction, batch: InvocationBatch, check: Check | None
    ) -> None:
        self._target = batch.target
        self._record = batch.record
        self.context = Context(batch.target, Storage(function.specs, batch.state), check)
        self._failures: list[FailedInvocation] = []
        self._before: tuple[int, int, int, dict[str, TypedValue | None]] = (0, 0, 0, {})

    def begin(self, index: int, invocation: Invocation) -> Message:
        caller, argument, trace = invocation
        context, target = self.context, self._target
        record = None if self._record is None else partial(self._record, index)
        message = Message(target.typename, target.id, argument, record)
        turn_to(context, message, caller, trace)
        self._before = (
            len(context.messages),
            len(context.delayed),
            len(context.egress_messages),
            changes(context.storage).copy(),
        )
        return message

    def take_back(self, index: int, error: Exception) -> None:
        messages, delayed, egress_messages, changed = self._before
        del self.context.messages[messages:]
        del self.context.delayed[delayed:]
        del self.context.egress_messages[egress_messages:]
        restore(self.context.storage, changed)
        self._failures.append(_failed(self._target, index, error))

    def result(self) -> InvocationResult:
        context = self.context
        return InvocationResult(
            changes(context.storage),
            context.messages,
            context.delayed,
            context.egress_messages,
            self._failures,
        )


def _failed(target: Address, index: int, error: Exception) -> FailedInvocation:
    # The first frame is the loop that called the user's function.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    cause = type(error).__name__
    if not isinstance(error, InvocationError):
        error = FunctionError(
            f"function {target.typename} failed at address {target}: "
            f"{type(error).__name__}: {error}"
        )
    return FailedInvocation(index, error, cause, text)
