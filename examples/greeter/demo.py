# SPDX-License-Identifier: Apache-2.0
"""The greeter, from sending users to showing their greetings."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from itertools import chain

from running import (
    DRAIN,
    consume,
    drained,
    fresh_checkpoint,
    produce,
    submitted,
    wait_for_interrupt,
)

from statefun.dev import EmbeddedKafka
from statefun.dev.progress import ProgressLine

PAGE_PORT = int(os.environ.get("ADMIN_PORT", "8083"))
USERS = ["Ada", "Grace", "Alan", "Ada", "Edsger", "Grace", "Ada", "Barbara", "Alan", "Ada"]


def create_topics(kafka: EmbeddedKafka) -> None:
    """Create the topics of module.yaml."""
    for topic in ("users", "greetings"):
        kafka.create_topic(topic, partitions=2)


def greet_users(kafka: EmbeddedKafka, *, has_page: bool = False) -> None:
    """Send a few users and show their greetings as they come out.

    Args:
        kafka: the broker.
        has_page: whether the greeter serves its live page; on a terminal, it then runs until Ctrl-C.
    """
    create_topics(kafka)
    produce(kafka, "users", ((name, json.dumps({"name": name}).encode()) for name in USERS))
    visits: Counter[str] = Counter()
    print(f"Sent {len(USERS)} records to topic users. Launching the greeter:")
    options = ("--conf", f"spark.statefun.admin={PAGE_PORT}") if has_page else ()
    print(f"  $ {' '.join(['spark-submit', *options, 'examples/greeter/app.py'])}")
    with (
        fresh_checkpoint() as checkpoint,
        submitted(kafka, "greeter", checkpoint, *options, is_short=not has_page) as process,
    ):
        greetings = consume(kafka, process, "greetings", len(USERS))
        with ProgressLine("Starting Spark"):
            first = next(greetings)
        for key, text in chain([first], greetings):
            print(f"  {text}")
            visits[key] += 1
        if has_page:
            print(f"\nThe live page: http://127.0.0.1:{PAGE_PORT}/page/")
            if sys.stdin.isatty():
                print("The greeter answers until Ctrl-C.")
                wait_for_interrupt(process)
        process.send_signal(signal.SIGTERM)
        process.wait()
    print(f"\n{len(USERS)} greetings for {len(visits)} users:")
    for name, count in visits.most_common():
        print(f"  {name:<8} {'█' * count} {count}")


def greet_flights(kafka: EmbeddedKafka, limit: int | None) -> None:
    """Send real flights, greet them all, and check every count."""
    from greeter import flights  # noqa: PLC0415 - loads pandas, which the plain demo does not need

    create_topics(kafka)
    with ProgressLine("Sending flights"):
        tail_numbers, without = flights.greeted_flights(limit)
        produce(kafka, "users", flights.records(tail_numbers))
    print(
        f"Sent {len(tail_numbers):,} flights to topic users, keyed by tail number; "
        f"{without:,} flights have none and were left out. Launching the greeter:"
    )
    print("  $ spark-submit --conf spark.statefun.available-now=true examples/greeter/app.py")
    began = time.monotonic()
    with (
        fresh_checkpoint() as checkpoint,
        submitted(kafka, "greeter", checkpoint, *DRAIN) as process,
    ):
        greetings = []
        with ProgressLine("Greeting flights") as progress:
            for greeting in consume(kafka, process, "greetings", len(tail_numbers)):
                greetings.append(greeting)
                if len(greetings) % 1000 == 0:
                    progress.update(f"{len(greetings):,} of {len(tail_numbers):,}")
        drained(process)
    seconds = time.monotonic() - began
    wrong = flights.verify(tail_numbers, greetings)
    if wrong:
        sys.exit("\n".join(["The greetings are wrong:", *wrong[:10]]))
    print(f"  {greetings[-1][1]}")
    print(f"\n{'flights':>10} {'aircraft':>10} {'seconds':>10} {'records/s':>10}")
    print(
        f"{len(tail_numbers):>10,} {tail_numbers.nunique():>10,} {seconds:>10.1f} "
        f"{len(tail_numbers) / seconds:>10,.0f}"
    )
    print("Every aircraft's last greeting counts all of its flights, as pandas does.")
