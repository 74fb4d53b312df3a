# SPDX-License-Identifier: Apache-2.0
"""Finds, in the test of one function, delayed messages with a token that a pending message already uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from statefun.sdk.address import Address
from statefun.sdk.errors import FunctionError
from statefun.sdk.sent import Cancellation, token_in_use
from statefun.testing.outcomes import DelayedMessage


class PendingMessages:
    """Remembers which delayed messages of a function under test are cancelled.

    All other delayed messages are pending as long as the test keeps them in the list ``delayed``, since no time
    passes in such a test. A message without a delay is not pending, as it is due at once.

    Args:
        sender: the address of the function.
    """

    def __init__(self, sender: Address) -> None:
        self._sender = sender
        self._cancelled: list[DelayedMessage] = []

    def add(
        self,
        listed: Sequence[DelayedMessage],
        sent: Sequence[DelayedMessage | Cancellation],
        watermark: datetime | None,
    ) -> None:
        """Check the delayed messages of a call, and remember which messages it has cancelled.

        Args:
            listed: the delayed messages of earlier calls that the test has not removed.
            sent: the delayed messages and cancellations of the call, in order.
            watermark: the watermark that the call saw.

        Raises:
            FunctionError: if a message has the token of a pending message; then no cancellation is remembered.
        """
        identities = {id(each) for each in listed}
        cancelled = [each for each in self._cancelled if id(each) in identities]
        no_longer = {id(each) for each in cancelled}
        pending: dict[str, list[DelayedMessage]] = {}
        for each in listed:
            if id(each) not in no_longer and _uses_token(each, watermark):
                pending.setdefault(each.cancellation_token, []).append(each)
        for one in sent:
            if isinstance(one, Cancellation):
                cancelled += pending.pop(one.cancellation_token, [])
            elif one.cancellation_token in pending:
                raise FunctionError(
                    f"{token_in_use(self._sender, one.cancellation_token).message} (in this test, messages "
                    "in the list delayed are pending; remove the message from it if it has arrived)"
                )
            elif _uses_token(one, watermark):
                pending[one.cancellation_token] = [one]
        self._cancelled = cancelled


def _uses_token(message: DelayedMessage, watermark: datetime | None) -> bool:
    """Return whether a message has a token, and is not due."""
    if not message.cancellation_token:
        return False
    if message.when is None:
        return message.delay > timedelta(0)
    return watermark is None or message.when > watermark
