# SPDX-License-Identifier: Apache-2.0
"""The greeter from end to end, with nothing prepared: ``make demo``.

Starts a Kafka broker of its own, sends users, launches ``app.py`` with ``spark-submit``, shows
the greetings as they come out, and stops everything again. With ``--flights``, 334,264 real
records go through, and every count is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from confluent_kafka import Consumer, Producer

from statefun.dev import EmbeddedKafka
from statefun.dev.progress import Progress

HERE = Path(__file__).resolve().parent
LOG = HERE.parent.parent / "build" / "demo.log"
USERS = ["Ada", "Grace", "Alan", "Ada", "Edsger", "Grace", "Ada", "Barbara", "Alan", "Ada"]
PATIENCE_SECONDS = 120


def main() -> None:
    """Parse the command line and run the demo that it asks for."""
    parser = argparse.ArgumentParser(prog="make demo ARGS=...", description=__doc__)
    parser.add_argument("--flights", action="store_true", help="greet 334,264 real flights")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    arguments = parser.parse_args()
    began = time.monotonic()
    with Progress("Starting Kafka") as progress:
        kafka = EmbeddedKafka(progress=progress.update)
        kafka.start()
    try:
        for topic in ("users", "greetings"):
            kafka.create_topic(topic, partitions=2)
        if arguments.flights:
            greet_flights(kafka, arguments.limit)
        else:
            greet_users(kafka)
    finally:
        kafka.stop()
    print(f"\nEverything is stopped again; {time.monotonic() - began:.0f} s in all.")


def greet_users(kafka: EmbeddedKafka) -> None:
    """Send a few users and show their greetings as they come out."""
    produce(kafka, ((name, json.dumps({"name": name}).encode()) for name in USERS))
    visits: Counter[str] = Counter()
    print(f"Sent {len(USERS)} records to topic users. Launching the greeter:")
    print("  $ spark-submit examples/greeter/app.py")
    with greeter(kafka) as process:
        greetings = consume(kafka, process, len(USERS))
        with Progress("Starting Spark"):
            first = next(greetings)
        for key, text in chain([first], greetings):
            print(f"  {text}")
            visits[key] += 1
        process.send_signal(signal.SIGTERM)
        process.wait()
    print(f"\n{len(USERS)} greetings for {len(visits)} users:")
    for name, count in visits.most_common():
        print(f"  {name:<8} {'█' * count} {count}")


def greet_flights(kafka: EmbeddedKafka, limit: int | None) -> None:
    """Send real flights, greet them all, and check every count."""
    import flights  # noqa: PLC0415 - loads pandas and the data, which the plain demo does not need

    with Progress("Sending flights"):
        tail_numbers, without = flights.greeted_flights(limit)
        produce(kafka, flights.records(tail_numbers))
    print(
        f"Sent {len(tail_numbers):,} flights to topic users, keyed by tail number; "
        f"{without:,} flights have none and were left out. Launching the greeter:"
    )
    print("  $ spark-submit --conf spark.statefun.available-now=true examples/greeter/app.py")
    began = time.monotonic()
    with greeter(kafka, "--conf", "spark.statefun.available-now=true") as process:
        greetings = []
        with Progress("Greeting flights") as progress:
            for greeting in consume(kafka, process, len(tail_numbers)):
                greetings.append(greeting)
                if len(greetings) % 1000 == 0:
                    progress.update(f"{len(greetings):,} of {len(tail_numbers):,}")
        if process.wait() != 0:
            sys.exit(f"the greeter failed; what it said:\n{LOG.read_text()}")
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


@contextmanager
def greeter(kafka: EmbeddedKafka, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``app.py`` with ``spark-submit``; stop it if it still runs at the end."""
    bin_ = Path(sys.executable).parent
    environment = {
        **os.environ,
        "KAFKA_ADDRESS": kafka.bootstrap_servers,
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    LOG.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="statefun-demo-") as folder, LOG.open("wb") as log:
        command = [
            *(str(bin_ / "spark-submit"), *options),
            *("--conf", f"spark.statefun.checkpoint={folder}/checkpoint"),
            str(HERE / "app.py"),
        ]
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def produce(kafka: EmbeddedKafka, records: Iterable[tuple[str, bytes]]) -> None:
    """Send records to the topic that the greeter listens to."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 20, "enable.idempotence": True}
    )
    for key, value in records:
        while True:
            try:
                producer.produce("users", value, key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def consume(
    kafka: EmbeddedKafka, process: subprocess.Popen[bytes], count: int
) -> Iterator[tuple[str, str]]:
    """Yield ``count`` greetings (key and text) as they arrive in the egress topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "demo",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["greetings"])
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while count > 0:
            messages = consumer.consume(10_000, timeout=0.5)
            for message in messages:
                yield (message.key() or b"").decode(), (message.value() or b"").decode()
            count -= len(messages)
            if messages:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif process.poll() not in {None, 0} or time.monotonic() > deadline:
                sys.exit(f"the greeter has failed; what it said:\n{LOG.read_text()}")
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
