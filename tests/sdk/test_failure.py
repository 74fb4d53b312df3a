# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statefun import DefinitionError, OnFailure, Retry
from statefun.sdk.failure import failure_policy

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, SECOND), "the attempts of a Retry must be two or more, not 1"),
        (("3", SECOND), "the attempts of a Retry must be two or more, not '3'"),
        ((2, timedelta(0)), r"a backoff must be a positive timedelta, not datetime.timedelta\(0\)"),
        ((2, 1.5), "a backoff must be a positive timedelta, not 1.5"),
        ((2, SECOND, 7), "the action after the last attempt must be an OnFailure, not 7"),
        ((2, SECOND, "later"), "'later'.*'fail', 'skip', 'dead-letter' or Retry"),
    ],
)
def test_a_retry_with_a_wrong_argument_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    """The error has the argument."""
    with pytest.raises(DefinitionError, match=text):
        Retry(*arguments)


def test_a_policy_is_a_word_or_an_object() -> None:
    """None is the default of the application."""
    retry = Retry(2, SECOND, "skip")

    assert failure_policy("dead-letter") is OnFailure.DEAD_LETTER
    assert failure_policy(OnFailure.SKIP) is OnFailure.SKIP
    assert failure_policy(retry) is retry
    assert retry.then is OnFailure.SKIP
    assert failure_policy(None) is None
    with pytest.raises(DefinitionError, match="'never'"):
        failure_policy("never")
