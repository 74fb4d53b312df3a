# SPDX-License-Identifier: Apache-2.0
"""Effects of functions as values that tests compare: pytest shows which field differs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from statefun.engine.letters import HEADER_PREFIX
from statefun.engine.sinks import EgressRecord
from statefun.sdk.address import Address
from statefun.sdk.annotations import automatic_types
from statefun.sdk.egress import KafkaEgressMessage
from statefun.sdk.encoding import check_value
from statefun.sdk.message import Message, message_to, type_of
from statefun.sdk.sent import DelayedMessage as Delayed
from statefun.sdk.times import from_epoch_millis
from statefun.sdk.types import Type, TypedValue, default_types


def content(value: TypedValue) -> Any:
    """Decode a value by its typename; return a value of an unknown type as :class:`TypedValue`."""
    if value.value is None:
        return None
    named = default_types.find(value.typename)
    for type_ in (named,) if named else automatic_types(value.typename):
        try:
            return type_.decode(value.typename, value.value)
        except Exception:  # noqa: BLE001, S112 - one of several classes of the same name
            continue
    return value


def argument_of(target: Address, value: Any, value_type: Type[Any] | None) -> TypedValue:
    """Return the encoded value of a message to ``target``.

    Args:
        target: the address that gets the message.
        value: the value; or a Message or a TypedValue, which contains an encoded value already.
        value_type: the type that encodes the value; None: the type for the value's class.

    Raises:
        DefinitionError: if the value cannot be encoded, or the id is empty.
    """
    if isinstance(value, TypedValue):
        return value
    message = value if isinstance(value, Message) else message_to(target, value, value_type)
    return message.typed_value


def checked_argument_of(target: Address, value: Any, value_type: Type[Any] | None) -> TypedValue:
    """Return the encoded value of a message that a test sends to an application; see :func:`argument_of`.

    Raises:
        DefinitionError: as for :func:`argument_of`, or if no function could send the value.
    """
    return check_value(argument_of(target, value, value_type))


@attrs.frozen
class SentMessage:
    """A message to a function.

    >>> SentMessage(Address("com.example/cart", "Ada"), 5).target.id
    'Ada'
    """

    target: Address
    value: Any
    """The decoded value; a :class:`~statefun.TypedValue` if the value's type is not known."""

    @classmethod
    def of(cls, message: Message) -> SentMessage:
        """Convert a message that a function has sent: the result has a decoded value, which tests can compare."""
        target = Address(message.target_typename, message.target_id)
        value, type_ = message.typed_value, type_of(message)
        if type_ is None:
            return cls(target, content(value))
        return cls(target, type_.decode(*value))


@attrs.frozen
class DelayedMessage:
    """A message to a function, to be delivered later.

    >>> DelayedMessage(timedelta(hours=1), Address("com.example/cart", "Ada"), "still?").value
    'still?'
    """

    delay: timedelta
    target: Address
    value: Any
    cancellation_token: str = ""
    when: datetime | None = None
    """The event time at which the message is due; None if the delay counts."""

    @classmethod
    def of(cls, sent: Delayed) -> DelayedMessage:
        """Convert a delayed message of a function: the result has a decoded value, which tests can compare."""
        message = SentMessage.of(sent.message)
        when = None if sent.due is None else from_epoch_millis(sent.due)
        return cls(sent.delay, message.target, message.value, sent.cancellation_token, when)


@attrs.frozen
class PublishedRecord:
    """A record in a topic of an egress.

    >>> PublishedRecord(b"Hello", key="Ada").text
    'Hello'
    """

    value: bytes | None
    key: str | None = None
    headers: Mapping[str, bytes | None] = attrs.field(factory=dict)

    @property
    def text(self) -> str:
        """The value as text, decoded from UTF-8; empty if the record has no value."""
        return (self.value or b"").decode()

    def json(self) -> Any:
        """Decode the value from JSON; None if the record has no value."""
        return json.loads(self.value or b"null")

    @classmethod
    def of(cls, record: KafkaEgressMessage | EgressRecord) -> PublishedRecord:
        """Convert a record that comes from a function or the engine to one that tests can compare."""
        key = record.key
        text = key.decode(errors="backslashreplace") if isinstance(key, bytes) else key
        return cls(record.value, text, dict(record.headers or ()))


@attrs.frozen
class DeadLetter:
    """A dead letter: a message or record that was not handled, as the dead-letter topic describes it.

    >>> DeadLetter(b"{}", "Ada", "SF302", "no JSON", Address("com.example/cart", "Ada"), 1).code
    'SF302'
    """

    value: bytes | None
    """The encoded value of the message or record."""
    key: str | None
    code: str
    """The stable code of the error, such as ``SF301``."""
    message: str
    """The error's text."""
    target: Address | None
    """The address of the message; None if no function could receive it."""
    attempts: int
    traceback: str = attrs.field(default="", eq=False)
    """The traceback of an exception in users' code; empty if users' code has not raised one."""

    @classmethod
    def of(cls, record: PublishedRecord) -> DeadLetter:
        """Convert a record of the dead-letter topic to a dead letter."""
        facts = {
            name.removeprefix(HEADER_PREFIX): (value or b"").decode()
            for name, value in record.headers.items()
            if name.startswith(HEADER_PREFIX)
        }
        typename, target = facts.get("target-type"), None
        if typename is not None:
            target = Address(typename, facts["target"].removeprefix(f"{typename}/"))
        code, text = facts.get("error-code", ""), facts.get("error-message", "")
        attempts, trace = int(facts.get("attempts", 1)), facts.get("traceback", "")
        return cls(record.value, record.key, code, text, target, attempts, trace)
