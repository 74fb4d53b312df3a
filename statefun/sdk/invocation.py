# SPDX-License-Identifier: Apache-2.0
"""Invoking one address with a batch of messages: the one meaning of "invoke" there is.

The two values mirror the request-reply protocol's ``InvocationBatchRequest`` and
``InvocationResponse``: whoever runs functions, in process or behind bytes, goes through here.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import attrs

from statefun.sdk.address import Address
from statefun.sdk.context import Context
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import FunctionError, InvocationError
from statefun.sdk.functions import StatefulFunction
from statefun.sdk.message import Message
from statefun.sdk.storage import Storage, changes
from statefun.sdk.types import TypedValue


class Invocation(NamedTuple):
    """One message for the target of a batch."""

    caller: Address | None
    argument: TypedValue


@attrs.frozen
class InvocationBatch:
    """All messages for one address, in order, with the state that it has before them."""

    target: Address
    state: Mapping[str, TypedValue]
    invocations: Sequence[Invocation]


@attrs.frozen
class InvocationResult:
    """The effects of a batch."""

    state_mutations: Mapping[str, TypedValue | None]
    """New values by name; None deletes."""
    messages: Sequence[Message]
    """Messages to functions, in the order they were sent."""
    egress_messages: Sequence[EgressMessage]
    """Records for egresses, in the order they were sent."""


@attrs.define
class InvocationFailedError(Exception):
    """The invocation at ``index`` failed with ``error``; no effect of the batch may be used."""

    index: int
    error: InvocationError
    traceback: str
    """What Python would have printed."""


class _Turn:
    """One address's turn: iterating sets up each invocation in the shared context."""

    def __init__(self, function: StatefulFunction, batch: InvocationBatch) -> None:
        self._batch = batch
        self._index = 0
        self.context = Context(batch.target, Storage(function.specs, batch.state))

    def __iter__(self) -> Iterator[Message]:
        context, target = self.context, self._batch.target
        for index, (caller, argument) in enumerate(self._batch.invocations):
            self._index = index
            context.caller = caller
            yield Message(target.typename, target.id, argument)

    def failed(self, error: Exception) -> InvocationFailedError:
        # The first frame is the loop that called the user's function.
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, frames))
        if not isinstance(error, InvocationError):
            error = FunctionError(
                f"function {self.context.address.typename} failed at address "
                f"{self.context.address}: {type(error).__name__}: {error}"
            )
        return InvocationFailedError(self._index, error, text)

    def result(self) -> InvocationResult:
        context = self.context
        return InvocationResult(changes(context.storage), context.messages, context.egress_messages)


def invoke(function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
    """Run a plain function over a batch.

    Raises:
        InvocationFailedError: if one of the invocations failed.
    """
    turn = _Turn(function, batch)
    for message in turn:
        try:
            function.call(turn.context, message)
        except Exception as error:
            raise turn.failed(error) from error
    return turn.result()


async def invoke_async(function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
    """Run a coroutine function over a batch, one message after the other.

    Raises:
        InvocationFailedError: if one of the invocations failed.
    """
    turn = _Turn(function, batch)
    for message in turn:
        try:
            await function.call(turn.context, message)
        except Exception as error:
            raise turn.failed(error) from error
    return turn.result()
