# SPDX-License-Identifier: Apache-2.0
"""Encodes requests and decodes replies of the request-reply protocol.

The protocol is that of ``request-reply.proto`` of Stateful Functions 3.x. The first reply of a function
names the values that the function keeps, and each later request contains these values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from google.protobuf.message import DecodeError

from statefun.protocol.request_reply_pb2 import Address as WireAddress
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction
from statefun.protocol.request_reply_pb2 import TypedValue as WireValue
from statefun.sdk.address import RESERVED, Address, is_reserved
from statefun.sdk.context import PrepareMessage
from statefun.sdk.egress import EgressMessage
from statefun.sdk.encoding import check_value
from statefun.sdk.errors import DefinitionError, StateDecodeError
from statefun.sdk.invocation_batch import Invocation, InvocationResult
from statefun.sdk.message import Message
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

_Mode = FromFunction.ExpirationSpec.ExpireMode
_Change = FromFunction.PersistedValueMutation.MutationType


class ReplyError(Exception):
    """An answer is no reply of the protocol; the error's text continues "has answered with ..."."""


class StaleReplyError(Exception):
    """A reply changes a value that the function has not declared; the text continues "has answered with ..."."""


class RemoteValue(NamedTuple):
    """A value that a function behind an endpoint keeps, as a reply has declared it."""

    typename: str
    expiration: Expiration | None
    """When the value expires; None if it does not."""


def request_of(
    target: Address,
    remote_values: Mapping[str, RemoteValue],
    state: Mapping[str, TypedValue],
    invocations: Sequence[Invocation],
) -> bytes:
    """Return the bytes of a request.

    Args:
        target: the address to invoke.
        remote_values: the values that the address's function keeps, by name: the request contains these.
        state: the present values of the address, by name.
        invocations: the messages for the address.

    Raises:
        StateDecodeError: if a stored value has another type than its function declares now.
    """
    request = ToFunction()
    batch = request.invocation
    _put_address(batch.target, target)
    for name, remote_value in remote_values.items():
        value = batch.state.add()
        value.state_name = name
        stored_value = state.get(name)
        if stored_value is None:
            continue
        if stored_value.typename != remote_value.typename:
            raise StateDecodeError(
                f"function {target.typename} keeps its value {name!r} as {remote_value.typename}, but at "
                f"address {target} it is stored as {stored_value.typename}; use another name for the value"
            )
        _put_value(value.state_value, stored_value)
    for caller, argument, _ in invocations:
        message = batch.invocations.add()
        if caller is not None:
            _put_address(message.caller, caller)
        _put_value(message.argument, argument)
    return request.SerializeToString()


def reply_of(content: bytes) -> FromFunction:
    """Decode the bytes of a reply; a reply without bytes has no effects.

    Raises:
        ReplyError: if the bytes are no reply of the protocol.
    """
    try:
        reply = FromFunction.FromString(content)
    except DecodeError:
        raise ReplyError(f"{len(content):,} bytes that are no FromFunction") from None
    if content and reply.WhichOneof("response") is None:
        raise ReplyError(f"{len(content):,} bytes that hold no response")
    return reply


def missing_values(reply: FromFunction) -> dict[str, RemoteValue]:
    """Return the values that the next request must contain, as the reply says, by name.

    Raises:
        ReplyError: if a value has no name, a reserved type, an unknown mode of expiration, or a time of expiration that
            is not positive.
    """
    values = {}
    for spec in reply.incomplete_invocation_context.missing_values:
        if not spec.state_name:
            raise ReplyError("a request for a value without a name")
        if is_reserved(spec.type_typename):
            raise ReplyError(
                f"a request for value {spec.state_name!r}: typename {spec.type_typename!r} {RESERVED}"
            )
        lifetime = spec.expiration_spec
        expiration = None
        if lifetime.mode not in _Mode.values():
            raise ReplyError(
                f"a request for value {spec.state_name!r} with mode {lifetime.mode} of expiration, "
                "which the protocol does not have"
            )
        if lifetime.mode != _Mode.NONE:
            if lifetime.expire_after_millis <= 0:
                raise ReplyError(
                    f"a request for value {spec.state_name!r} with an expiration of "
                    f"{lifetime.expire_after_millis} ms, but an expiration must be positive"
                )
            after = _milliseconds(lifetime.expire_after_millis)
            on_call = lifetime.mode == _Mode.AFTER_INVOKE
            expiration = Expiration(spec.state_name, after, on_call)
        values[spec.state_name] = RemoteValue(spec.type_typename, expiration)
    return values


def effects_of(
    reply: FromFunction,
    remote_values: Mapping[str, RemoteValue],
    prepare: PrepareMessage | None,
    trace: str | None,
) -> InvocationResult:
    """Return the effects in a reply.

    Args:
        reply: a reply that does not ask for values.
        remote_values: the values that the function keeps, by name.
        prepare: checks and converts each message and record before it is sent; None to send all as they are.
        trace: the trace-context headers for the messages in the reply.

    Raises:
        ReplyError: if the reply is ill-formed.
        StaleReplyError: if it changes values that the function has not declared.
        StatefunError: if a message or record in it cannot be sent.
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
        dict(_mutation(each, remote_values) for each in effects.state_mutations),
        [sent for sent in map(ready, messages) if isinstance(sent, Message)],
        delayed,
        [sent for sent in map(ready, records) if isinstance(sent, EgressMessage)],
        (),
    )


def _mutation(
    wire: FromFunction.PersistedValueMutation, remote_values: Mapping[str, RemoteValue]
) -> tuple[str, TypedValue | None]:
    name = wire.state_name
    if name not in remote_values:
        raise StaleReplyError(f"a change of value {name!r}, which it has never declared")
    if wire.mutation_type == _Change.DELETE:
        return name, None
    if wire.mutation_type != _Change.MODIFY:
        raise ReplyError(
            f"a change of value {name!r} of type {wire.mutation_type}, which the protocol does not have"
        )
    value = _value(wire.state_value)
    if value.typename != remote_values[name].typename:
        raise StaleReplyError(
            f"a value of type {value.typename} for {name!r}, which it has declared as "
            f"{remote_values[name].typename}"
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
        raise ReplyError(
            f"a value of type {wire.typename!r} without content (has_value is not set)"
        )
    try:
        return check_value(TypedValue(wire.typename, wire.value))
    except DefinitionError as error:
        raise ReplyError(f"a value that cannot be sent or stored: {error.message}") from error


def _put_address(wire: WireAddress, address: Address) -> None:
    wire.namespace, wire.type, wire.id = address.namespace, address.name, address.id


def _put_value(wire: WireValue, value: TypedValue) -> None:
    wire.typename = value.typename
    if value.value is not None:
        wire.value = value.value
        wire.has_value = True
