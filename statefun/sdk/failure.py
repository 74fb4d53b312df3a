# SPDX-License-Identifier: Apache-2.0
"""Failure policies: for messages whose function fails, and for records that no function can receive."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import attrs

from statefun.sdk.errors import DefinitionError


class OnFailure(Enum):
    """The action for a message that was not handled; the message's effects are always discarded.

    >>> OnFailure("dead-letter")
    <OnFailure.DEAD_LETTER: 'dead-letter'>
    """

    FAIL = "fail"
    """Stop the application; after the next start, the same message is handled again."""
    SKIP = "skip"
    """Drop the message; the number of dropped messages is logged."""
    DEAD_LETTER = "dead-letter"
    """Write the message and the reason to the dead-letter topic, and go on."""


def _then(value: OnFailure | str | None) -> OnFailure | None:
    return _word(value) if isinstance(value, str) else value


@attrs.frozen
class Retry:
    """Handle a failed message again later; after the last attempt, the policy ``then`` applies.

    Other messages to the same address do not wait meanwhile. The attempts go on after a restart.

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
    """The action after the last attempt; None: the action for functions without a failure policy."""

    def __attrs_post_init__(self) -> None:
        if not (isinstance(self.attempts, int) and self.attempts > 1):
            raise DefinitionError(
                f"the attempts of a Retry must be two or more, not {self.attempts!r}"
            )
        if not (isinstance(self.backoff, timedelta) and self.backoff > timedelta(0)):
            raise DefinitionError(f"a backoff must be a positive timedelta, not {self.backoff!r}")
        if not (self.then is None or isinstance(self.then, OnFailure)):
            raise DefinitionError(
                f"the action after the last attempt must be an OnFailure, not {self.then!r}"
            )


FailurePolicy = OnFailure | Retry
"""The policy for a message whose function fails."""


def failure_policy(value: object) -> FailurePolicy | None:
    """Return a failure policy that a user has given as an object, as a word such as ``"skip"``, or as None.

    None stands for the default policy, and is returned unchanged.

    Raises:
        DefinitionError: if the value is not a failure policy.
    """
    if value is None or isinstance(value, OnFailure | Retry):
        return value
    return _word(value)


def late_policy(value: object) -> OnFailure:
    """Return a policy for late messages that a user has given.

    Raises:
        DefinitionError: if the value is neither an :class:`OnFailure` nor the word for one.
    """
    try:
        return OnFailure(value)
    except ValueError:
        raise DefinitionError(
            f"the policy for late messages must be skip, dead-letter or fail, not {value!r}"
        ) from None


def _word(value: object) -> OnFailure:
    try:
        return OnFailure(value)
    except ValueError:
        words = ", ".join(repr(each.value) for each in OnFailure)
        raise DefinitionError(
            f"{value!r} is not a failure policy; use one of {words} or Retry(...)"
        ) from None
