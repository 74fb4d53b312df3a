# SPDX-License-Identifier: Apache-2.0
"""Greeting real flights, by tail number, and checking every count."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import pandas as pd
from nycflights import read_flights


def greeted_flights(limit: int | None = None) -> tuple[pd.Series[str], int]:
    """Return the tail numbers of the first ``limit`` flights, and how many have none."""
    flights, without = read_flights(["tailnum"], limit)
    return flights["tailnum"], without


def records(tail_numbers: pd.Series[str]) -> Iterator[tuple[str, bytes]]:
    """Return key and value of the record for each flight."""
    for tail_number in tail_numbers:
        yield tail_number, json.dumps({"name": tail_number}).encode()


def verify(tail_numbers: pd.Series[str], greetings: Iterable[tuple[str, str]]) -> list[str]:
    """Compare greetings (key and text, in order) with an independent count by pandas.

    Returns:
        A text for each difference; none if all is right.
    """
    counts = tail_numbers.groupby(tail_numbers).count()
    expected = {str(key): visits for key, visits in counts.items()}
    last: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for key, text in greetings:
        last[key] = text
        seen[text] += 1
    wrong = [
        f"{key}: the last greeting is {last.get(key)!r}, but there were {visits} flights"
        for key, visits in expected.items()
        if last.get(key) != f"Hello {key}, visit {visits}"
    ]
    if len(seen) != len(tail_numbers):
        wrong.append(f"{len(seen)} distinct greetings for {len(tail_numbers)} flights")
    return wrong
