# SPDX-License-Identifier: Apache-2.0
"""Finds the name that somebody may have meant, for error texts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``, regardless of case; None if none is similar.

    >>> nearest_name("consumergroupid", ["address", "consumerGroupId"])
    'consumerGroupId'
    """
    by_lower_case = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[near[0]] if near else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the question whether the most similar known name was meant; empty if none is similar.

    >>> suggestion("com.example/gretter", ["com.example/greeter"])
    'did you mean com.example/greeter?'
    """
    near = nearest_name(name, known)
    return "" if near is None else f"did you mean {near}?"
