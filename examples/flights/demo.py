# SPDX-License-Identifier: Apache-2.0
"""A year of flights through planes, carriers and airports, checked against pandas."""

from __future__ import annotations

import sys
import time

from flights import data
from running import DRAIN, consume, drained, fresh_checkpoint, produce, submitted

from statefun.dev import EmbeddedKafka
from statefun.dev.progress import ProgressLine

FINAL = ("--conf", "spark.statefun.final-watermark=true")
"""Lets a run that has read all flights close the windows of the last ones."""


def follow_flights(kafka: EmbeddedKafka, limit: int | None) -> None:
    """Send flights, let the functions message each other, and compare everybody's totals."""
    for topic, partitions in data.TOPICS.items():
        kafka.create_topic(topic, partitions=partitions)
    with ProgressLine("Sending flights"):
        flights, without = data.load(limit)
        produce(kafka, "flights", data.records(flights))
    print(
        f"Sent {len(flights):,} flights, keyed by tail number; {without:,} have none and were "
        "left out. Launching:"
    )
    print("  $ spark-submit --conf spark.statefun.available-now=true \\")
    print("      --conf spark.statefun.final-watermark=true examples/flights/app.py")
    expected, expected_hours = data.expected(flights), data.expected_hours(flights)
    began = time.monotonic()
    with fresh_checkpoint() as checkpoint:
        with (
            ProgressLine("Planes message carriers and airports"),
            submitted(kafka, "flights", checkpoint, *DRAIN, *FINAL) as process,
        ):
            hours = dict(consume(kafka, process, "hours", len(expected_hours)))
            drained(process)
        seconds = time.monotonic() - began
        for kind, by_id in expected.items():
            produce(kafka, f"{kind}-reports", ((id_, b"{}") for id_ in by_id))
        with (
            ProgressLine("Asking everybody for totals"),
            submitted(kafka, "flights", checkpoint, *DRAIN) as process,
        ):
            count = sum(map(len, expected.values()))
            totals = dict(consume(kafka, process, "totals", count))
            drained(process)
    differences = data.wrong(expected, totals) + data.wrong_hours(expected_hours, hours)
    if differences:
        sys.exit("\n".join(["The totals are wrong:", *differences[:10]]))
    print(f"\n{'airport':>10} {'arrivals':>10} {'mean delay':>12}")
    busiest = sorted(expected["airport"].items(), key=lambda item: -item[1]["arrivals"])
    for airport, total in busiest[:5]:
        mean = total["minutes"] / total["arrivals"]
        print(f"{airport:>10} {total['arrivals']:>10,} {mean:>8.1f} min")
    messages = len(flights) + 2 * sum(total["arrivals"] for _, total in busiest)
    print(
        f"\n{len(flights):,} flights and {messages:,} messages between functions in "
        f"{seconds:.0f} s; the totals of {len(expected['plane']):,} planes, "
        f"{len(expected['carrier'])} carriers and {len(expected['airport'])} airports, and the delays "
        f"of {len(expected_hours):,} hours, are those of pandas."
    )
