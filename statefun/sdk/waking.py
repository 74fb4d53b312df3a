# SPDX-License-Identifier: Apache-2.0
"""Wake-ups: messages without content that functions with windows and joins send themselves for an event time."""

from __future__ import annotations

from statefun.sdk.context import Context
from statefun.sdk.sent import WakeUp, no_event_time

_SHARE = 100
_QUARTER = 250


def unit_of(wait: int) -> int:
    """Return the unit, in milliseconds, to which the due times of wake-ups are rounded up.

    The unit is about a hundredth of ``wait``, and a multiple of a quarter of a second. The watermark stops at each time
    at which a message is due. If each address of a busy application had due times of its own, the watermark would rise
    by only a quarter of a second in two micro-batches, and fall behind if these take longer than that.

    >>> unit_of(30 * 60_000), unit_of(1000)
    (18000, 250)

    Args:
        wait: how long addresses wait, in milliseconds.
    """
    return max(wait // _SHARE // _QUARTER, 1) * _QUARTER


def send_to_itself(context: Context, wake_up: WakeUp) -> None:
    """Send the context's address a wake-up.

    Raises:
        FunctionError: if there is no event time, as for :meth:`statefun.Context.send_at`.
    """
    if not context._has_event_times:  # noqa: SLF001 - no part of the API
        raise no_event_time(context.address)
    trace = context._trace  # noqa: SLF001 - as above
    if trace is not None:
        wake_up = wake_up._replace(trace=trace)
    context._sent.wake_ups.append(wake_up)  # noqa: SLF001 - as above
