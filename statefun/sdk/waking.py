# SPDX-License-Identifier: Apache-2.0
"""Wake-ups: messages without content that functions with windows and joins send themselves for an event time."""

from __future__ import annotations

from statefun.sdk.context import Context
from statefun.sdk.sent import WakeUp, no_event_time


def send_to_itself(context: Context, wake_up: WakeUp) -> None:
    """Send the context's address a wake-up.

    Raises:
        FunctionError: if there is no event time, as for :meth:`statefun.Context.send_at`.
    """
    if not context._has_event_times:  # noqa: SLF001 - no part of the API
        raise no_event_time(context.address)
    context._sent.wake_ups.append(wake_up)  # noqa: SLF001 - as above
