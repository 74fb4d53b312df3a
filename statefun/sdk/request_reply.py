# SPDX-License-Identifier: Apache-2.0
"""The request-reply protocol: calls of functions as bytes, for runtimes that call them remotely.

A request has an address with its state and its messages; the reply has the effects. A runtime does
not know which values a function stores: the first reply asks for the missing values, and the runtime
sends the request again with them. The protocol is that of Stateful Functions 3.x
(``request-reply.proto``), whose runtime repeats a request that gets no reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from google.protobuf.message import DecodeError

from statefun.protocol.request_reply_pb2 import Address as WireAddress
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.protocol.request_reply_pb2 import TypedValue as WireValue
from statefun.sdk.address import Address
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import DefinitionError, FunctionError, RequestError
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import Invocation, InvocationBatch, InvocationResult
from statefun.sdk.message import Message
from statefun.sdk.misdirected import check_class
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.times import in_milliseconds
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import ValueSpec

logger = logging.getLogger("statefun")

_Expiration = FromFunction.ExpirationSpec.ExpireMode
_Mutation = FromFunction.PersistedValueMutation.MutationType


class RequestReplyHandler:
    r"""Answers requests of a runtime of Stateful Functions with the effects of functions.

    >>> from statefun import StatefulFunctions, kafka_egress_message
    >>> from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
    >>> functions = StatefulFunctions()
    >>> @functions.bind("com.example.docs/greeter")
    ... def greet(ctx, message):
    ...     ctx.send_egress(kafka_egress_message("com.example.docs/out", "out", "Hello"))
    >>> request = ToFunction()
    >>> target = request.invocation.target
    >>> target.namespace, target.type, target.id = "com.example.docs", "greeter", "Ada"
    >>> argument = request.invocation.invocations.add().argument
    >>> argument.typename, argument.has_value = "io.statefun.types/string", True
    >>> argument.value = b"\x0a\x03Ada"
    >>> reply = RequestReplyHandler(functions).handle_sync(request.SerializeToString())
    >>> FromFunction.FromString(reply).invocation_result.outgoing_egresses[0].egress_type
    'out'
    """

    def __init__(self, functions: StatefulFunctions) -> None:
        """Make a handler of requests to ``functions``, including functions that are registered later.

        Raises:
            DefinitionError: if ``functions`` is not a :class:`~statefun.StatefulFunctions`.
        """
        if not isinstance(functions, StatefulFunctions):
            raise DefinitionError(
                f"a RequestReplyHandler needs a StatefulFunctions, not {functions!r}"
            )
        self.functions = functions

    def handle_sync(self, request_bytes: bytes) -> bytes:
        """Call the function that a request is for, and return the reply; for programs without an event loop.

        Raises:
            UnknownFunctionError: if the request's function is not registered.
            RequestError: if the bytes are not a request.
            FunctionError: if the function needs event time.
            Exception: the exception that the function has raised, unless its failure policy is
                ``"skip"``; other policies have no effect, since the runtime decides what to do. The
                request then has no effects, and the runtime sends the request again.
        """
        request = _Request(self.functions, request_bytes)
        if not request.missing_specs and request.function.is_async:
            return asyncio.run(request.answer_async())
        return request.answer()

    async def handle_async(self, request_bytes: bytes) -> bytes:
        """Do as :meth:`handle_sync` on the running event loop; a plain function blocks the loop.

        Raises:
            Exception: as for :meth:`handle_sync`.
        """
        request = _Request(self.functions, request_bytes)
        if not request.missing_specs and request.function.is_async:
            return await request.answer_async()
        return request.answer()

    def target_of(self, request_bytes: bytes) -> Address:
        """Return the address that a request is for, for example for a log record."""
        target = ToFunction.FromString(request_bytes).invocation.target
        return Address(target.namespace, target.type, target.id)


class _Request:
    """A decoded request; its methods call the function and make the reply."""

    def __init__(self, functions: StatefulFunctions, content: bytes) -> None:
        try:
            invocation = ToFunction.FromString(content).invocation
        except (DecodeError, TypeError) as error:
            raise RequestError(
                f"a request must be the bytes of a ToFunction, which Protobuf cannot decode: {error}"
            ) from error
        wire = invocation.target
        self._functions = functions
        self._target = Address(wire.namespace, wire.type, wire.id)
        self._invocations = invocation.invocations
        self._state = {each.state_name: each.state_value for each in invocation.state}
        self.function = functions.for_typename(self._target.typename)
        check_served(self.function)
        self.missing_specs = [
            spec for spec in _stored_specs(self.function) if spec.name not in self._state
        ]
        """The specs of the function's values that are missing in the request."""

    def answer(self) -> bytes:
        """Call a plain function; return the reply."""
        if self.missing_specs:
            return _incomplete(self.missing_specs)
        return self._reply(invoke(self.function, self._batch(), self._checked, served=True))

    async def answer_async(self) -> bytes:
        """Call a coroutine function; return the reply."""
        return self._reply(
            await invoke_async(self.function, self._batch(), self._checked, served=True)
        )

    def _checked(self, sent: Message | EgressMessage) -> Message | EgressMessage:
        """Check the class of a value that is sent to a function of the same program; the runtime knows no classes."""
        if isinstance(sent, Message):
            target = self._functions.find(sent.target_typename)
            if target is not None:
                check_class(sent, target)
        return sent

    def _batch(self) -> InvocationBatch:
        state = {
            name: TypedValue(value.typename, value.value)
            for name, value in self._state.items()
            if value.has_value
        }
        return InvocationBatch(
            self._target, state, [_invocation(each) for each in self._invocations]
        )

    def _reply(self, result: InvocationResult) -> bytes:
        for failure in result.failures:
            logger.warning(
                "skipped a message to %s: %s\n%s", self._target, failure.error, failure.traceback
            )
        reply = FromFunction()
        effects = reply.invocation_result
        for message in result.messages:
            sent = effects.outgoing_messages.add()
            _put_target(sent.target, message)
            _put_value(sent.argument, message.typed_value)
        for delayed in result.delayed:
            _put_delayed(effects.delayed_invocations.add(), delayed)
        for record in result.egress_messages:
            egress = effects.outgoing_egresses.add()
            namespace, _, egress.egress_type = record.typename.rpartition("/")
            egress.egress_namespace = namespace
            _put_value(egress.argument, record.typed_value)
        for name in (*self.function.specs, *self.function.renamed_values):
            if name in result.state_mutations:
                mutation = effects.state_mutations.add()
                mutation.state_name = name
                value = result.state_mutations[name]
                if value is not None:
                    mutation.mutation_type = _Mutation.MODIFY
                    _put_value(mutation.state_value, value)
        return reply.SerializeToString()


def _invocation(wire: ToFunction.Invocation) -> Invocation:
    argument, caller = wire.argument, wire.caller
    # None stands for no value, which differs from an empty value.
    content: Any = argument.value if argument.has_value else None
    sender = None
    if caller.type or caller.id:
        sender = Address(caller.namespace, caller.type, caller.id)
    return Invocation(sender, TypedValue(argument.typename, content))


def _put_target(wire: WireAddress, message: Message) -> None:
    wire.namespace, _, wire.type = message.target_typename.rpartition("/")
    wire.id = message.target_id


def _put_value(wire: WireValue, value: TypedValue) -> None:
    wire.typename, wire.value = value
    wire.has_value = True


def _put_delayed(
    wire: FromFunction.DelayedInvocation, delayed: DelayedMessage | Cancellation
) -> None:
    wire.cancellation_token = delayed.cancellation_token
    if isinstance(delayed, Cancellation):
        wire.is_cancellation_request = True
        return
    wire.delay_in_ms = in_milliseconds(delayed.delay)
    _put_target(wire.target, delayed.message)
    _put_value(wire.argument, delayed.message.typed_value)


def check_served(function: StatefulFunction) -> None:
    """Check that a function can be called by a remote runtime.

    Raises:
        FunctionError: if it needs event time.
    """
    if function.needs_event_time:
        raise FunctionError(
            f"function {function.typename} has windows or joins streams, so it cannot be behind an endpoint, as the protocol of Stateful "
            "Functions carries no event time: let the application run the function itself, and send it messages"
        )


def _stored_specs(function: StatefulFunction) -> Iterator[ValueSpec]:
    """Yield the specs of the values that may be stored for a function, also under their former names."""
    for spec in function.specs.values():
        yield spec
        for former in spec.renamed_from:
            yield attrs.evolve(spec, name=former, renamed_from=())


def _incomplete(missing: Sequence[ValueSpec]) -> bytes:
    """Return a reply that asks the runtime for the values that are missing in its request."""
    reply = FromFunction()
    for spec in missing:
        value = reply.incomplete_invocation_context.missing_values.add()
        value.state_name = spec.name
        value.type_typename = spec.type.typename
        expiration = value.expiration_spec
        expiration.SetInParent()
        expiration.expire_after_millis = spec.duration
        if spec.after_call:
            expiration.mode = _Expiration.AFTER_INVOKE
        elif spec.after_write:
            expiration.mode = _Expiration.AFTER_WRITE
    return reply.SerializeToString()
