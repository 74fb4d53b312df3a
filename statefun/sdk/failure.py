# SPDX-License-Identifier: Apache-2.0
"""Failure policies: for messages that a function fails on, and records that none can receive."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import attrs

from statefun.sdk.errors import DefinitionError


class OnFailure(Enum):
    """The action for a message that was not handled; its effects are always taken back.

    >>> OnFailure("dead-letter")
    <OnFailure.DEAD_LETTER: 'dead-letter'>
    """

    FAIL = "fail"
    """Stop the application, and go on with the same message at the next start."""
    SKIP = "skip"
    """Leave the message out; the number of such messages is logged."""
    DEAD_LETTER = "dead-letter"
    """Write the message and the reason to the dead-letter topic, and go on."""


def _then(value: OnFailure | str | None) -> OnFailure | None:
    return _word(value) if isinstance(value, str) else value


@attrs.frozen
class Retry:
    """Try the message again later, before another policy applies.

    Other messages to the same address do not wait meanwhile. Attempts survive restarts.

    >>> Retry(attempts=5, backoff=timedelta(seconds=1), then=OnFailure.SKIP).attempts
    5

    Raises:
        DefinitionError: if there are fewer than two attempts, or the backoff is not positive.
    """

    attempts: int
    """The number of attempts, the first one included."""
    backoff: timedelta
    """The wait before the second attempt; each later wait is twice as long."""
    then: OnFailure | None = attrs.field(default=None, converter=_then)
    """The action after the last attempt; None: the action for failures without retries."""

    def __attrs_post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and self.attempts > 1):
            raise DefinitionError(f"a retry takes at least two attempts, not {self.attempts!r}")
        if not (isinstance(self.backoff, timedelta) and self.backoff > timedelta(0)):
            raise DefinitionError(f"a backoff is a positive timedelta, not {self.backoff!r}")
        if not (self.then is None or isinstance(self.then, OnFailure)):
            raise DefinitionError(f"after the last attempt comes an OnFailure, not {self.then!r}")


FailurePolicy = OnFailure | Retry
"""The policy for a message on which a function fails."""


def failure_policy(value: object) -> FailurePolicy | None:
    """Convert a policy as users write it: a policy, the word for one, or None for the default.

    Raises:
        DefinitionError: if the value is no policy.
    """
    if value is None or isinstance(value, OnFailure | Retry):
        return value
    return _word(value)


def _word(value: object) -> OnFailure:
    try:
        return OnFailure(value)
    except ValueError:
        words = ", ".join(repr(each.value) for each in OnFailure)
        raise DefinitionError(
            f"{value!r} is not a failure policy; there are {words} and Retry(...)"
        ) from None
