# SPDX-License-Identifier: Apache-2.0
"""Take the picture of the live page in the README: ``make screenshot``, which needs Chromium.

The orders example runs on a Kafka broker of its own; some of its orders are wrong on purpose.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser import browser
from confluent_kafka import Producer
from harness import wait
from local_servers import connected, free_port
from submitting import submit

from statefun.dev import EmbeddedKafka, read_records

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "assets" / "page.png"
TOPICS = ("orders", "deliveries", "order-events", "parcels", "orders-dead", "orders-replayed")
ITEMS = ("tea", "coffee", "cocoa", "sugar")
ORDERS_PER_SECOND = 200
SECONDS = 60
"""How long orders have come when the picture is taken."""


def send_orders(producer: Producer, is_over: threading.Event) -> None:
    """Send orders of random customers until it is over, and goods for most of them."""
    chance = random.Random(1)  # noqa: S311 - no secret
    for number in itertools.count():
        item = chance.choice(ITEMS)
        order = {
            "customer": f"customer-{chance.randrange(500)}",
            "item": item,
            "count": 0 if number % 997 == 0 else chance.randint(1, 3),
            "cents": chance.randint(100, 5_000),
            "city": chance.choice(["London", "Paris", "Turin"]),
        }
        producer.produce("orders", json.dumps(order), f"order-{number}")
        if number % 20 == 0:
            producer.produce("deliveries", json.dumps({"count": 150}), item)
        producer.poll(0)
        if is_over.wait(1 / ORDERS_PER_SECOND):
            producer.flush()
            return


@contextmanager
def sending(kafka: EmbeddedKafka) -> Iterator[None]:
    """Send orders meanwhile."""
    is_over = threading.Event()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    thread = threading.Thread(target=send_orders, args=(producer, is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def main() -> None:
    """Run the example, and take the picture."""
    port = free_port()
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as name:
        for topic in TOPICS:
            kafka.create_topic(topic, partitions=2)
        folder = Path(name)
        with sending(kafka):
            options = ("--conf", f"spark.statefun.admin={port}")
            process = submit(kafka, "orders", folder, *options)
            try:
                connected(port, process).close()
                with browser(folder) as tab:
                    tab.open(f"http://127.0.0.1:{port}/page/")
                    wait(lambda: bool(read_records(kafka.bootstrap_servers, "order-events")))
                    time.sleep(SECONDS)
                    tab.screenshot(PICTURE)
            finally:
                process.terminate()
                process.wait()
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
