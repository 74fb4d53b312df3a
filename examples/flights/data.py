# SPDX-License-Identifier: Apache-2.0
"""The flights as records, and the expected totals of planes, carriers and airports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from nycflights import read_flights

COLUMNS = ["tailnum", "carrier", "dest", "distance", "arr_delay"]
TOPICS = {
    "flights": 2,
    "plane-reports": 2,
    "carrier-reports": 1,
    "airport-reports": 1,
    "alerts": 1,
    "totals": 1,
}
"""Every topic of module.yaml, with its partitions."""


def load(limit: int | None = None) -> tuple[pd.DataFrame, int]:
    """Return the first ``limit`` flights that have a tail number, and how many have none."""
    return read_flights(COLUMNS, limit)


def records(flights: pd.DataFrame) -> Iterator[tuple[str, bytes]]:
    """Return key and value of the record for each flight."""
    for tail_number, carrier, dest, distance, delay in flights[COLUMNS].itertuples(index=False):
        value = {
            "carrier": carrier,
            "to": dest,
            "miles": int(distance),
            "delay": None if pd.isna(delay) else int(delay),
        }
        yield tail_number, json.dumps(value).encode()


def expected(flights: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Compute with pandas, by kind and id, the expected report of every address."""
    planes = flights.groupby("tailnum").agg(
        legs=("dest", "size"), miles=("distance", "sum"), last_airport=("dest", "last")
    )
    carriers = flights.groupby("carrier").agg(flights=("dest", "size"), miles=("distance", "sum"))
    arrived = flights.dropna(subset=["arr_delay"])
    airports = arrived.groupby("dest").agg(arrivals=("dest", "size"), minutes=("arr_delay", "sum"))
    return {
        "plane": planes.to_dict("index"),
        "carrier": carriers.to_dict("index"),
        "airport": airports.astype(int).to_dict("index"),
    }


def wrong(expected: Mapping[str, Mapping[str, Any]], totals: Mapping[str, str]) -> list[str]:
    """Compare the reports of all addresses with the expected ones.

    Returns:
        A text for each difference; none if all is right.
    """
    differences = []
    for kind, by_id in expected.items():
        for id_, total in by_id.items():
            address = f"com.example.flights/{kind}/{id_}"
            reported = json.loads(totals[address]) if address in totals else None
            if reported != total:
                differences.append(f"{address} reports {reported}, but pandas says {total}")
    return differences
