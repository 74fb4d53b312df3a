# SPDX-License-Identifier: Apache-2.0
"""Invoking one address with a batch of messages: the one meaning of "invoke" there is.

The two values mirror the request-reply protocol's ``InvocationBatchRequest`` and
``InvocationResponse``: whoever runs functions, in process or behind bytes, goes through here.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
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


class InvocationBatch(NamedTuple):
    """All messages for one address, in order, with the state that it has before them."""

    target: Address
    state: Mapping[str, TypedValue]
    invocations: Sequence[Invocation]


class InvocationResult(NamedTuple):
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


def invoke(function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
    """Run a plain function over a batch.

    Raises:
        InvocationFailedError: if one of the invocations failed.
    """
    target, call = batch.target, function.call
    context = _context(function, batch)
    index = 0
    try:
        for index, (caller, argument) in enumerate(batch.invocations):  # noqa: B007 - names the failing one
            context.caller = caller
            call(context, Message(target.typename, target.id, argument))
    except Exception as error:
        raise _failed(target, index, error) from error
    return _result(context)


async def invoke_async(function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
    """Run a coroutine function over a batch, one message after the other.

    Raises:
        InvocationFailedError: if one of the invocations failed.
    """
    target, call = batch.target, function.call
    context = _context(function, batch)
    index = 0
    try:
        for index, (caller, argument) in enumerate(batch.invocations):  # noqa: B007 - names the failing one
            context.caller = caller
            await call(context, Message(target.typename, target.id, argument))
    except Exception as error:
        raise _failed(target, index, error) from error
    return _result(context)


def _context(function: StatefulFunction, batch: InvocationBatch) -> Context:
    return Context(batch.target, Storage(function.specs, batch.state))


def _result(context: Context) -> InvocationResult:
    return InvocationResult(changes(context.storage), context.messages, context.egress_messages)


def _failed(target: Address, index: int, error: Exception) -> InvocationFailedError:
    # The first frame is the loop that called the user's function.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    if not isinstance(error, InvocationError):
        error = FunctionError(
            f"function {target.typename} failed at address {target}: "
            f"{type(error).__name__}: {error}"
        )
    return InvocationFailedError(index, error, text)
