# SPDX-License-Identifier: Apache-2.0
"""The flights as records, and the expected totals of planes, carriers and airports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from nycflights import read_flights

COLUMNS = ["tailnum", "carrier", "dest", "distance", "arr_delay", "time_hour"]
TOPICS = {
    "flights": 2,
    "plane-reports": 2,
    "carrier-reports": 1,
    "airport-reports": 1,
    "alerts": 1,
    "totals": 1,
    "hours": 1,
}
"""Every topic of module.yaml, with its partitions."""


def load(limit: int | None = None) -> tuple[pd.DataFrame, int]:
    """Return the first ``limit`` flights that have a tail number, day by day, and how many have none."""
    flights, without = read_flights([*COLUMNS, "month", "day"], limit)
    return flights.sort_values(["month", "day"], kind="stable"), without


def records(flights: pd.DataFrame) -> Iterator[tuple[str, bytes]]:
    """Return key and value of the record for each flight."""
    rows = flights[COLUMNS].itertuples(index=False)
    for tail_number, carrier, dest, distance, delay, scheduled in rows:
        value = {
            "carrier": carrier,
            "to": dest,
            "miles": int(distance),
            "scheduled": scheduled,
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


def expected_hours(flights: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Compute with pandas, by airport and hour of scheduled departures, the expected delays."""
    arrived = flights.dropna(subset=["arr_delay"])
    times = pd.to_datetime(arrived["time_hour"], utc=True).dt.strftime("%Y-%m-%dT%H:%MZ")
    hours = arrived.groupby(arrived["dest"] + " " + times)
    totals = hours.agg(arrivals=("dest", "size"), minutes=("arr_delay", "sum")).astype(int)
    return {str(key): total for key, total in totals.to_dict("index").items()}


def wrong_hours(expected: Mapping[str, Mapping[str, int]], hours: Mapping[str, str]) -> list[str]:
    """Compare the published hours with the expected ones; return a text for each difference."""
    found = {key: json.loads(value) for key, value in hours.items()}
    return [
        f"{key}: {found.get(key)} was published, but pandas says {expected.get(key)}"
        for key in sorted(expected.keys() | found.keys())
        if found.get(key) != expected.get(key)
    ]


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
