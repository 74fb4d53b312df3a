# SPDX-License-Identifier: Apache-2.0
"""Limits of how often functions are called."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statefun import Context, DefinitionError, Message, RateLimit, StatefulFunctions


@pytest.mark.parametrize(
    "arguments", [(0,), (-1,), (True,), (1.5,), (1, timedelta(0)), (1, 5), ("1",)]
)
def test_limits_that_let_nothing_pass_are_refused(arguments: Any) -> None:
    """A rate limit needs at least one call, and a time."""
    with pytest.raises(DefinitionError, match="of a rate limit"):
        RateLimit(*arguments)


@pytest.mark.parametrize(
    "options", [{"max_in_flight": 0}, {"max_in_flight": True}, {"rate_limit": 5}]
)
def test_a_registration_refuses_other_values(options: Any) -> None:
    """The error names the function's file."""
    functions = StatefulFunctions()

    def fun(ctx: Context, message: Message) -> None:
        pass

    with pytest.raises(DefinitionError, match=r"test_limits\.py.*(max_in_flight|rate_limit)"):
        functions.register("t/f", fun, **options)
