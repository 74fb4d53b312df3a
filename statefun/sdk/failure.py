# SPDX-License-Identifier: Apache-2.0
"""What becomes of a message that a function fails to handle, or of a record that none can get."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import attrs

from statefun.sdk.errors import DefinitionError


class OnFailure(Enum):
    """What to do with a message that was not handled; its own effects are taken back in any case.

    >>> OnFailure("dead-letter")
    <OnFailure.DEAD_LETTER: 'dead-letter'>
    """

    FAIL = "fail"
    """Stop the application, and go on with the same message at the next start."""
    SKIP = "skip"
    """Leave it out; how many there were is logged."""
    DEAD_LETTER = "dead-letter"
    """Write it to the dead-letter topic, with the reason, and go on."""


@attrs.frozen
class Retry:
    """Try again later, before anything else is done about a failure.

    What comes to the same address meanwhile does not wait. Attempts survive restarts.

    >>> Retry(attempts=5, backoff=timedelta(seconds=1), then=OnFailure.SKIP).attempts
    5

    Raises:
        DefinitionError: if there are fewer than two attempts, or the backoff is not positive.
    """

    attempts: int
    """How often to try in all, the first time included."""
    backoff: timedelta
    """How long to wait before the second attempt; twice as long before every further one."""
    then: OnFailure | None = None
    """What to do after the last attempt; without it, what is done about other failures."""

    def __attrs_post_init__(self) -> None:
        if isinstance(self.then, str):
            object.__setattr__(self, "then", _word(self.then))
        if not (isinstance(self.attempts, int) and self.attempts > 1):
            raise DefinitionError(f"a retry takes at least two attempts, not {self.attempts!r}")
        if not (isinstance(self.backoff, timedelta) and self.backoff > timedelta(0)):
            raise DefinitionError(f"a backoff is a positive timedelta, not {self.backoff!r}")
        if not (self.then is None or isinstance(self.then, OnFailure)):
            raise DefinitionError(f"after the last attempt comes an OnFailure, not {self.then!r}")


FailurePolicy = OnFailure | Retry
"""What becomes of a message on which a function fails."""


def failure_policy(value: object) -> FailurePolicy | None:
    """Take a policy as users write it: as it is, by its word, or None for the default.

    Raises:
        DefinitionError: if it is none.
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
            f"{value!r} says nothing about failures; there are {words} and Retry(...)"
        ) from None
