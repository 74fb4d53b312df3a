# SPDX-License-Identifier: Apache-2.0
"""What the framework does with the context of a call: begins it with each message, ends it, and finds its values."""

from __future__ import annotations

from typing import Final

from statefun.sdk.address import Address
from statefun.sdk.context import Context
from statefun.sdk.ended import ENDED_VALUES, refuse_sending
from statefun.sdk.message import Message
from statefun.sdk.values import Values

# Compiled code finds a constant at once, but an imported name in a dictionary.
_refuse_sending: Final = refuse_sending
_ENDED_VALUES: Final = ENDED_VALUES


def begin_message(
    context: Context,
    message: Message,
    caller: Address | None,
    trace: str | None,
    event_time: int | None,
) -> None:
    """Prepare a context for the next message: set the message, its caller, trace headers and event time."""
    context.caller = caller
    context._event_time = event_time  # noqa: SLF001 - no part of the API
    context._message = message  # noqa: SLF001 - no part of the API
    context._trace = trace  # noqa: SLF001 - as above


def end_context(context: Context) -> None:
    """End a context, and the one that was made of it: from now on, using them is an error."""
    context._prepare = _refuse_sending  # noqa: SLF001 - as above
    if context._derived is not None:  # noqa: SLF001 - as above
        context._derived._prepare = _refuse_sending  # noqa: SLF001 - as above
    values = context._values  # noqa: SLF001 - as above
    values.changed = values.stored = _ENDED_VALUES


def context_values(context: Context) -> Values:
    """Return the values of the context's address, for a :class:`~statefun.State`."""
    return context._values  # noqa: SLF001 - as above
