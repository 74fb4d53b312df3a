# SPDX-License-Identifier: Apache-2.0
"""The bytes of the request-reply protocol, as the runtime writes and reads them.

From ``request-reply.proto`` of Stateful Functions 3.x. Its functions tell what values they keep in
their first reply, and get the values with each request from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from google.protobuf.message import DecodeError

from statefun.protocol.request_reply_pb2 import Address as WireAddress
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.protocol.request_reply_pb2 import TypedValue as WireValue
from statefun.sdk.address import Address
from statefun.sdk.context import Cancellation, DelayedMessage, PrepareMessage
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import DefinitionError, StateDecodeError
from statefun.sdk.invocation_batch import Invocation, InvocationResult
from statefun.sdk.message import Message
from statefun.sdk.storage import Expiration
from statefun.sdk.types import TypedValue

_Mode = FromFunction.ExpirationSpec.ExpireMode
_MODIFY = FromFunction.PersistedValueMutation.MutationType.MODIFY


class ReplyError(Exception):
    """A reply that is none of the protocol; the text continues "has answered with"."""


class StaleReplyError(Exception):
    """A reply that fits other values than its function has told of; the text continues the same."""


class RemoteValue(NamedTuple):
    """A value that a function keeps, as it has told."""

    typename: str
    expiration: Expiration | None


def request_of(
    target: Address,
    known: Mapping[str, RemoteValue],
    state: Mapping[str, TypedValue],
    invocations: Sequence[Invocation],
) -> bytes:
    """Return the bytes of a request.

    Args:
        target: the address to invoke.
        known: the values that its function keeps, by name; those that it is sent.
        state: the values that the address has.
        invocations: the messages for it.

    Raises:
        StateDecodeError: if a value is of another type than its function keeps by now.
    """
    request = ToFunction()
    batch = request.invocation
    _put_address(batch.target, target)
    for name, told in known.items():
        value = batch.state.add()
        value.state_name = name
        held = state.get(name)
        if held is None:
            continue
        if held.typename != told.typename:
            raise StateDecodeError(
                f"function {target.typename} keeps its value {name!r} as {told.typename}, but at "
                f"address {target} it is stored as {held.typename}; use another name for it"
            )
        _put_value(value.state_value, held)
    for caller, argument, _ in invocations:
        message = batch.invocations.add()
        if caller is not None:
            _put_address(message.caller, caller)
        _put_value(message.argument, argument)
    return request.SerializeToString()


def reply_of(content: bytes) -> FromFunction:
    """Read a reply; one of no bytes has no effects.

    Raises:
        ReplyError: if the bytes are no reply.
    """
    try:
        reply = FromFunction.FromString(content)
    except DecodeError:
        raise ReplyError(f"{len(content):,} bytes that are no FromFunction") from None
    if content and reply.WhichOneof("response") is None:
        raise ReplyError(f"{len(content):,} bytes that hold no response")
    return reply


def missing_values(reply: FromFunction) -> dict[str, RemoteValue]:
    """Return the values that a reply asks for, by name.

    Raises:
        ReplyError: if one has no name, or a lifetime that is none.
    """
    found = {}
    for spec in reply.incomplete_invocation_context.missing_values:
        if not spec.state_name:
            raise ReplyError("a missing value without a name")
        lifetime = spec.expiration_spec
        expiration = None
        if lifetime.mode != _Mode.NONE:
            if lifetime.expire_after_millis <= 0:
                raise ReplyError(
                    f"value {spec.state_name!r}, which expires after "
                    f"{lifetime.expire_after_millis} ms"
                )
            after = _milliseconds(lifetime.expire_after_millis)
            on_call = lifetime.mode == _Mode.AFTER_INVOKE
            expiration = Expiration(spec.state_name, after, on_call)
        found[spec.state_name] = RemoteValue(spec.type_typename, expiration)
    return found


def effects_of(
    reply: FromFunction,
    known: Mapping[str, RemoteValue],
    prepare: PrepareMessage | None,
    trace: str | None,
) -> InvocationResult:
    """Return the effects that a reply has.

    Args:
        reply: one that does not ask for values.
        known: the values that the function keeps, by name.
        prepare: converts each message and record before it is sent.
        trace: the trace-context headers for its messages.

    Raises:
        ReplyError: if the reply is ill-formed.
        StaleReplyError: if it changes values that the function has not told of.
        StatefunError: if a message or record of it cannot be sent.
    """
    effects = reply.invocation_result
    ready: Callable[[Message | EgressMessage], Message | EgressMessage | None]
    ready = (lambda sent: sent) if prepare is None else prepare
    messages = [_message(each.target, each.argument, trace) for each in effects.outgoing_messages]
    delayed = [_delayed(each, trace) for each in effects.delayed_invocations]
    records = [
        EgressMessage(f"{each.egress_namespace}/{each.egress_type}", _value(each.argument))
        for each in effects.outgoing_egresses
    ]
    for later in delayed:
        if isinstance(later, DelayedMessage):
            ready(later.message)
    return InvocationResult(
        dict(_mutation(each, known) for each in effects.state_mutations),
        [sent for sent in map(ready, messages) if isinstance(sent, Message)],
        delayed,
        [sent for sent in map(ready, records) if isinstance(sent, EgressMessage)],
        (),
    )


def _mutation(
    wire: FromFunction.PersistedValueMutation, known: Mapping[str, RemoteValue]
) -> tuple[str, TypedValue | None]:
    name = wire.state_name
    if name not in known:
        raise StaleReplyError(f"a change of value {name!r}, which it has never told of")
    if wire.mutation_type != _MODIFY:
        return name, None
    value = _value(wire.state_value)
    if value.typename != known[name].typename:
        raise StaleReplyError(
            f"value {name!r} as {value.typename}, which it keeps as {known[name].typename}"
        )
    return name, value


def _delayed(
    wire: FromFunction.DelayedInvocation, trace: str | None
) -> DelayedMessage | Cancellation:
    if wire.is_cancellation_request:
        if not wire.cancellation_token:
            raise ReplyError("a cancellation without a token")
        return Cancellation(wire.cancellation_token)
    if wire.delay_in_ms < 0:
        raise ReplyError(f"a delay of {wire.delay_in_ms} ms")
    message = _message(wire.target, wire.argument, trace)
    return DelayedMessage(_milliseconds(wire.delay_in_ms), message, wire.cancellation_token)


def _message(target: WireAddress, argument: WireValue, trace: str | None) -> Message:
    try:
        message = Message(f"{target.namespace}/{target.type}", target.id, _value(argument))
    except DefinitionError as error:
        raise ReplyError(f"a message that is ill-formed: {error.message}") from error
    message.trace = trace
    return message


def _milliseconds(number: int) -> timedelta:
    try:
        return timedelta(milliseconds=number)
    except OverflowError:
        return timedelta.max


def _value(wire: WireValue) -> TypedValue:
    if not wire.has_value:
        raise ReplyError(f"a value of type {wire.typename!r} that has none")
    return TypedValue(wire.typename, wire.value)


def _put_address(wire: WireAddress, address: Address) -> None:
    wire.namespace, wire.type, wire.id = address.namespace, address.name, address.id


def _put_value(wire: WireValue, value: TypedValue) -> None:
    wire.typename = value.typename
    if value.value is not None:
        wire.value = value.value
        wire.has_value = True
