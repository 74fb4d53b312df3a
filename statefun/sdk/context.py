# SPDX-License-Identifier: Apache-2.0
"""The context of a function call: the address, its state, and ways to send messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, overload

from mypy_extensions import mypyc_attr

from statefun.sdk.address import Address, is_unicode
from statefun.sdk.egress import EgressMessage, record_to_send
from statefun.sdk.encoding import check_value
from statefun.sdk.ended import refuse_sending
from statefun.sdk.errors import (
    DefinitionError,
    FunctionError,
    InvocationError,
    StatefunError,
    caused,
)
from statefun.sdk.function_logger import FunctionLogger
from statefun.sdk.message import Message, message_to, message_to_send
from statefun.sdk.record import IngressRecord
from statefun.sdk.sent import Cancellation, DelayedMessage, Sent, no_event_time
from statefun.sdk.storage import Storage
from statefun.sdk.times import EPOCH, from_epoch_millis, in_milliseconds
from statefun.sdk.tracing import traced
from statefun.sdk.types import Type
from statefun.sdk.values import Values

_MAX_DELAY = timedelta(days=365_250)
_NO_DELAY = timedelta(0)


PrepareMessage = Callable[[Any], Any]
"""A function that converts a message before it is sent, or returns None to send nothing.

The function raises a StatefunError if the message cannot be sent, for example because the target
function or the egress does not exist.
"""


@mypyc_attr(allow_interpreted_subclasses=True)
class Context:
    """The first argument of a function: its address, its values, and ways to send messages.

    Effects (messages, egress records and changed state) become visible together, when the
    micro-batch that the invocation is part of is committed.
    """

    __slots__ = (
        "_derived",
        "_event_time",
        "_has_event_times",
        "_message",
        "_prepare",
        "_sent",
        "_trace",
        "_values",
        "_watermark",
        "address",
        "caller",
        "storage",
    )

    def __init__(  # noqa: PLR0913 - what an invocation batch gives
        self,
        address: Address,
        values: Values,
        sent: Sent,
        prepare: PrepareMessage | None = None,
        watermark: int | None = None,
        *,
        has_event_times: bool = False,
    ) -> None:
        self._watermark = watermark
        self._has_event_times = has_event_times
        self._event_time: int | None = None
        self._values = values
        self._sent = sent
        self._prepare = prepare
        self._derived: Context | None = None
        """The context of the same call that knows more, such as that of a window; it ends with this one."""
        self._message: Message | None = None
        self._trace: str | None = None
        self.address = address
        """The address of this function instance."""
        self.caller: Address | None = None
        """The address that has sent the message; None if it came from an ingress."""
        self.storage = Storage(values)
        """The values of this address, as declared by the function's specs."""

    @property
    def record(self) -> IngressRecord | None:
        """The ingress record that became the message; None if a function has sent the message.

        >>> def greet(ctx, message):
        ...     if ctx.record is not None:
        ...         print(ctx.record.topic, ctx.record.partition, ctx.record.offset)
        """
        return None if self._message is None else self._message.record

    @property
    def logger(self) -> FunctionLogger:
        """The logger of this call: its lines name the address, and have fields.

        >>> def charge(ctx, message):
        ...     ctx.logger.info("charged", amount=3, currency="EUR")
        """
        address = self.address
        return FunctionLogger(address, self._trace, logging.getLogger(str(address.typename)))

    @property
    def event_time(self) -> datetime | None:
        """The event time of the message, in UTC; None if it has none.

        A record has an event time if its ingress declares ``eventTime``. A message of a function has the event
        time of the message in whose invocation it was sent.
        """
        return None if self._event_time is None else from_epoch_millis(self._event_time)

    @property
    def watermark(self) -> datetime | None:
        """The watermark, in UTC; None if there is none yet, or no ingress declares ``eventTime``.

        All records and messages with an earlier event time have been handled, as far as the settings of
        ``eventTime`` can tell. A message whose event time is before the watermark is late. The watermark is
        the same in a whole micro-batch, and never falls.
        """
        return None if self._watermark is None else from_epoch_millis(self._watermark)

    @overload
    def send(self, message: Message | EgressMessage) -> None: ...

    @overload
    def send(self, message: Address, value: Any, value_type: Type[Any] | None = None) -> None: ...

    def send(self, message: Any, value: Any = None, value_type: Any = None) -> None:
        """Send a message to a function, or a record to an egress.

        Args:
            message: the message or record; or the address that a value is sent to.
            value: the value that is sent to an address.
            value_type: the type that encodes the value. If not given, the value's class decides:
                ``StringType`` for a string, ``LongType`` or ``DoubleType`` for a number. A value of
                another class is encoded by the type that :func:`~statefun.make_json_type` or a
                similar function has registered for the class. Without such a type, a Protobuf
                message is encoded as Protobuf, and any other value as JSON.

        Raises:
            DefinitionError: if ``message`` is not a message, a record or an address (a builder is none
                of these: call its ``.build()`` first), or if the value cannot be encoded or has more
                than 64 MiB.
            InvocationError: if the function or egress does not exist, or does not accept the message.

        >>> from statefun import Address
        >>> def login(ctx, message):
        ...     ctx.send(Address("com.example.fns/greeter", "Ada"), "hello")
        """
        if isinstance(message, EgressMessage):
            if type(message) is EgressMessage:  # others make their own values
                check_value(message.typed_value)
            ready = self._ready(record_to_send(message))
            if ready is not None:
                self._sent.egress_messages.append(ready)
        elif isinstance(message, Message):
            check_value(message.typed_value)
            self._sent.messages.append(self._ready(message_to_send(message)))
        elif isinstance(message, Address):
            self._sent.messages.append(self._ready(message_to(message, value, value_type)))
        else:
            raise DefinitionError(
                "send takes a Message, an EgressMessage, or an Address and a value, not "
                f"{type(message).__name__}{_hint(message)}"
            )

    def send_egress(self, message: EgressMessage) -> None:
        """Send a record to an egress; the same as :meth:`send`."""
        self.send(message)

    @overload
    def send_after(
        self, duration: timedelta, message: Message, cancellation_token: str | None = "", /
    ) -> None: ...

    @overload
    def send_after(
        self, duration: timedelta, message: Message, *, cancellation_token: str | None = ""
    ) -> None: ...

    @overload
    def send_after(
        self,
        duration: timedelta,
        message: Address,
        value: Any,
        cancellation_token: str | None = "",
        value_type: Type[Any] | None = None,
    ) -> None: ...

    def send_after(
        self,
        duration: Any,
        message: Any,
        value: Any = None,
        cancellation_token: Any = "",
        value_type: Any = None,
    ) -> None:
        """Send a message to a function, to be delivered after ``duration``.

        The message is never delivered early. It may be late by a quarter of a second, plus the duration
        of the micro-batches that deliver it. Delayed messages survive restarts: a message that becomes
        due while the application is stopped is delivered after the next start.

        Args:
            duration: how long to wait, not negative, and at most a thousand years.
            message: the message to send; its caller will be this address. Or the address that
                a value is sent to.
            value: the value that is sent to an address.
            cancellation_token: lets this address, and addresses of other types with the same id,
                cancel the message. As long as the message is pending, addresses with this id cannot
                use the token for another message.
            value_type: the type that encodes the value; see :meth:`send`.

        Raises:
            DefinitionError: if an argument is not as described above.
            InvocationError: if the function does not exist.

        >>> from datetime import timedelta
        >>> from statefun import message_builder
        >>> def remind(ctx, message):
        ...     reminder = message_builder("com.example.fns/reminder", "Ada", str_value="Call!")
        ...     ctx.send_after(timedelta(minutes=10), reminder, cancellation_token="call")
        """
        if not (isinstance(duration, timedelta) and timedelta(0) <= duration <= _MAX_DELAY):
            raise DefinitionError(
                "the duration for send_after must be a timedelta from zero to a thousand years, not "
                f"{duration!r}"
            )
        ready, token = self._later("send_after", message, value, cancellation_token, value_type)
        self._sent.delayed.append(DelayedMessage(duration, ready, token))

    @overload
    def send_at(
        self, when: datetime, message: Message, cancellation_token: str | None = "", /
    ) -> None: ...

    @overload
    def send_at(
        self, when: datetime, message: Message, *, cancellation_token: str | None = ""
    ) -> None: ...

    @overload
    def send_at(
        self,
        when: datetime,
        message: Address,
        value: Any,
        cancellation_token: str | None = "",
        value_type: Type[Any] | None = None,
    ) -> None: ...

    def send_at(
        self,
        when: Any,
        message: Any,
        value: Any = None,
        cancellation_token: Any = "",
        value_type: Any = None,
    ) -> None:
        """Send a message to a function, to be delivered when the watermark has reached ``when``.

        Before that, all records and messages with an earlier event time are handled, as far as the settings of
        ``eventTime`` can tell. Messages are delivered in the order of their times. ``when`` is rounded up to a quarter
        of a second, and becomes the event time of the message: until the message is delivered, the watermark does
        not rise above it. If the watermark has passed ``when`` already, the message is delivered at once.

        Args:
            when: the event time, with a time zone.
            message: as in :meth:`send_after`.
            value: as in :meth:`send_after`.
            cancellation_token: as in :meth:`send_after`; the message can be cancelled until the watermark has
                reached ``when``.
            value_type: the type that encodes the value; see :meth:`send`.

        Raises:
            DefinitionError: if an argument is not as described above.
            InvocationError: if the function does not exist.
            FunctionError: if there is no event time: no ingress declares it, or the function is behind an
                endpoint.

        >>> from datetime import timedelta
        >>> from statefun import Address
        >>> def add(ctx, message):
        ...     if ctx.event_time is not None:
        ...         end_of_day = ctx.event_time.replace(hour=0, minute=0, second=0) + timedelta(days=1)
        ...         ctx.send_at(end_of_day, Address("com.example.fns/report", ctx.address.id), "day is over")
        """
        if not (isinstance(when, datetime) and when.tzinfo is not None):
            raise DefinitionError(
                f"the time for send_at must be a datetime with a time zone, not {when!r}"
            )
        if not self._has_event_times:
            raise no_event_time(self.address)
        ready, token = self._later("send_at", message, value, cancellation_token, value_type)
        due = in_milliseconds(when - EPOCH)
        self._sent.delayed.append(DelayedMessage(_NO_DELAY, ready, token, due))

    def _later(
        self,
        method: str,
        message: Any,
        value: Any,
        cancellation_token: Any,
        value_type: Any,
    ) -> tuple[Any, str]:
        """Check a message that ``method`` is to send later; return the message, ready to be sent, and its token."""
        if isinstance(message, Address):
            message = message_to(message, value, value_type)
        elif value is not None:  # a message comes with its value, so the token is next
            if cancellation_token:
                text = f"{method} takes a value only with an Address: a Message has its own value"
                raise DefinitionError(text)
            cancellation_token = value
        if not isinstance(message, Message):
            raise DefinitionError(
                f"{method} takes a Message, or an Address and a value, not {type(message).__name__}{_hint(message)}"
            )
        token = cancellation_token or ""
        if not is_unicode(token):
            raise DefinitionError(f"a cancellation token must be a string, not {token!r}")
        check_value(message.typed_value)
        return self._ready(message_to_send(message)), token

    @overload
    def cancel_delayed_message(self, cancellation_token: str, /) -> None: ...

    @overload
    def cancel_delayed_message(self, *, cancellation_token: str) -> None: ...

    def cancel_delayed_message(self, cancellation_token: Any) -> None:
        """Cancel the delayed message that an address with this id sent with ``cancellation_token``.

        The message is never delivered if it is cancelled before it is due. A message that is already
        due may be delivered nevertheless, without an error. If no pending message has the
        token, the call has no effect.

        Raises:
            DefinitionError: if the token is empty.
        """
        if not (is_unicode(cancellation_token) and cancellation_token):
            raise DefinitionError(
                f"the token of the message to cancel must be a string that is not empty, not {cancellation_token!r}"
            )
        if self._prepare is refuse_sending:
            self._ready(None)
        self._sent.delayed.append(Cancellation(cancellation_token))

    def _ready(self, message: Any) -> Any:
        """Convert a message, of which nobody else has a reference, to the form in which it is sent; None to send nothing."""
        if self._prepare is not None:
            try:
                message = self._prepare(message)
            except StatefunError as error:
                kind = type(error) if isinstance(error, InvocationError) else FunctionError
                address = self.address
                text = f"function {address.typename} at address {address}: {error.message}"
                raise caused(kind(text), error) from error
        if isinstance(message, Message):
            if self._trace is not None:
                message.trace = self._trace
            if self._event_time is not None:
                message.event_time = self._event_time
        elif self._trace is not None and message is not None:
            message = traced(message, self._trace, self._message)
        return message


def _hint(message: object) -> str:
    return "; call its .build()" if hasattr(message, "build") else ""
