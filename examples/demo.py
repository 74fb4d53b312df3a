# SPDX-License-Identifier: Apache-2.0
"""The examples from end to end, with nothing prepared: ``make demo``.

Starts a Kafka broker of its own (not with ``--playground``), sends input, launches the example with
``spark-submit``, shows its output, and stops everything again.
"""

from __future__ import annotations

import argparse
import sys
import time

from statefun.dev import EmbeddedKafka
from statefun.dev.progress import ProgressLine


def main() -> None:
    """Parse the command line and run the demo that it asks for."""
    parser = argparse.ArgumentParser(prog="make demo ARGS=...", description=__doc__)
    parser.add_argument("--example", choices=["greeter", "flights"], default="greeter")
    parser.add_argument("--flights", action="store_true", help="greet 334,264 real flights")
    parser.add_argument("--playground", action="store_true", help="without Kafka, over HTTP")
    parser.add_argument(
        "--page",
        action="store_true",
        help="with the live page; on a terminal, it stays until Ctrl-C",
    )
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    arguments = parser.parse_args()
    began = time.monotonic()
    if arguments.playground:
        from greeter.play import greet_by_http  # noqa: PLC0415 - it needs no Kafka

        greet_by_http()
    else:
        run_with_kafka(arguments)
    print(f"\nEverything is stopped again; {time.monotonic() - began:.0f} s in all.")


def run_with_kafka(arguments: argparse.Namespace) -> None:
    """Run a demo on a broker of its own."""
    with ProgressLine("Starting Kafka") as progress:
        kafka = EmbeddedKafka(progress=progress.update)
        kafka.start()
    # An example's modules are loaded while its broker is up already.
    from flights.demo import follow_flights  # noqa: PLC0415 - see above
    from greeter.demo import greet_flights, greet_users  # noqa: PLC0415 - see above

    try:
        if arguments.example == "flights":
            follow_flights(kafka, arguments.limit)
        elif arguments.flights:
            greet_flights(kafka, arguments.limit)
        else:
            greet_users(kafka, has_page=arguments.page)
    finally:
        kafka.stop()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nEverything is stopped again, before its end.")
        sys.exit(130)
