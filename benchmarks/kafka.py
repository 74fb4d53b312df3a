# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the greeter against the same function in other frameworks.

One broker, one input topic of two partitions, the same records for all: counted per key in
durable state, one record out for each one in. A figure is the rate at which records reach the
output topic, by the broker's clock, from a fifth of them on: starting up does not count.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Case, alternate, report

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import open_session

HERE = Path(__file__).resolve().parent
VENVS = HERE.parent / "build" / "bench" / "venvs"
PEERS = {"quix": "quixstreams==3.28.1", "faust": "faust-streaming==0.15.3"}
PARTITIONS = 2
PATIENCE_SECONDS = 120
ALO, EO = "at-least-once", "exactly-once"
topics = itertools.count()


class Bench:
    """A broker, and one topic of records that everybody reads."""

    def __init__(self, kafka: EmbeddedKafka, records: int, keys: int, size: int) -> None:
        self.kafka = kafka
        self.records = records
        self.source = f"in-{next(topics)}"
        kafka.create_topic(self.source, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50})
        value = b"x" * size
        for key in np.random.default_rng(1).integers(keys, size=records):
            while True:
                try:
                    producer.produce(self.source, value, b"%d" % key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    def rate(
        self, work: Callable[[str], None], processes: Callable[[str], list[list[str]]]
    ) -> float:
        """Return records per second that reach an output topic of this run's own."""
        sink = f"out-{next(topics)}"
        self.kafka.create_topic(
            sink, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
        )
        with running(processes(sink)):
            work(sink)
            return self._rate_of(sink)

    def _rate_of(self, sink: str) -> float:
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(sink, number, 0) for number in range(PARTITIONS)])
        times: list[int] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(times) < self.records:
            messages = consumer.consume(10_000, timeout=1.0)
            times += [message.timestamp()[1] for message in messages if not message.error()]
            if messages:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                sys.exit(f"only {len(times):,} of {self.records:,} records came out of {sink}")
        consumer.close()
        times.sort()
        first = times[self.records // 5]
        counted = sum(1 for moment in times if moment > first)
        return counted / max(1, times[-1] - first) * 1000


@contextmanager
def running(commands: list[list[str]]) -> Iterator[None]:
    """Run commands in the background until the block ends."""
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def venv(peer: str) -> str:
    """Return the Python of a peer's own virtual environment, made when it is missing."""
    python = VENVS / peer / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENVS / peer)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", PEERS[peer]], check=True)
    return str(python)


def functions(sink: str) -> StatefulFunctions:
    """Return the greeter."""
    registry = StatefulFunctions()

    @registry.bind("bench/greeter", [ValueSpec("visits", IntType)])
    def greet(ctx: Context, message: Message) -> None:
        visits = (ctx.storage.visits or 0) + 1
        ctx.storage.visits = visits
        text = f"Hello {message.raw_value()[:20]!r}, visit {visits}"
        ctx.send(KafkaEgressMessage("bench/out", topic=sink, key=ctx.address.id, value=text))

    return registry


def run_ours(bench: Bench, folder: Path, semantic: str) -> Callable[[str], None]:
    """Return a function that runs our greeter until everything is published."""

    def work(sink: str) -> None:
        address = bench.kafka.bootstrap_servers
        module = parse_module(
            "kind: io.statefun.kafka.v1/ingress\n"
            f"spec: {{id: bench/in, address: '{address}', startupPosition: {{type: earliest}},\n"
            f"  consumerGroupId: {sink}, topics: [{{topic: {bench.source},\n"
            "  valueType: bench/bytes, targets: [bench/greeter]}]}\n"
            "---\n"
            "kind: io.statefun.kafka.v1/egress\n"
            f"spec: {{id: bench/out, address: '{address}', deliverySemantic: {{type: {semantic}}}}}\n"
        )
        settings = Settings.resolve({}, None, checkpoint=folder / sink, available_now=True)
        Application(module, functions(sink), settings).run()

    return work


def run_copy(bench: Bench, folder: Path) -> Callable[[str], None]:
    """Return a function that copies the topic with Spark alone: the lower bound on Spark."""

    def work(sink: str) -> None:
        address = bench.kafka.bootstrap_servers
        session = open_session(debug=False, state_partitions=2)
        records = (
            session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", bench.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 100_000)
            .load()
        )
        query = (
            records.select("key", "value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", address)
            .option("topic", sink)
            .option("checkpointLocation", str(folder / sink))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return work


def nothing(_sink: str) -> None:
    """Do nothing: the processes do it."""


def no_processes(_sink: str) -> list[list[str]]:
    """Start no process: the work is done here."""
    return []


class Peer(NamedTuple):
    """Something that ours is compared with."""

    name: str
    semantic: str
    """Of our egress in this comparison."""
    rate: Callable[[], float]


def peers(bench: Bench, folder: Path, wanted: str) -> Iterator[Peer]:
    """Return all systems to compare with ours."""

    def processes(peer: str, script: str, *options: str) -> Callable[[str], list[list[str]]]:
        def commands(sink: str) -> list[list[str]]:
            fixed = [venv(peer), str(HERE / "peers" / script), bench.kafka.bootstrap_servers]
            return [
                [*fixed, bench.source, sink, sink, *options, f"{folder}/{sink}-{number}"]
                for number in range(PARTITIONS)
            ]

        return commands

    if "quix" in wanted:
        for semantic in (ALO, EO):
            commands = processes("quix", "quix.py", semantic)
            yield Peer("Quix Streams", semantic, partial(bench.rate, nothing, commands))
    if "faust" in wanted:
        commands = processes("faust", "faust_app.py")
        yield Peer("Faust", ALO, partial(bench.rate, nothing, commands))
    if "copy" in wanted:
        copy = run_copy(bench, folder)
        yield Peer("copy-only Spark", EO, partial(bench.rate, copy, no_processes))
    if "self" in wanted:
        at_least_once = run_ours(bench, folder, ALO)
        yield Peer(f"itself {ALO}", EO, partial(bench.rate, at_least_once, no_processes))


def main() -> None:
    """Compare for several sizes of records and numbers of messages per address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", default="quix,copy,self", help="of these and faust")
    arguments = parser.parse_args()
    cases = []
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="statefun-bench-") as name:
        folder = Path(name)
        for keys, size in ((50_000, 100), (5_000, 100), (50_000, 1000)):
            bench = Bench(kafka, arguments.records, keys, size)
            for peer in peers(bench, folder, arguments.peers):
                run = run_ours(bench, folder, peer.semantic)
                ours = partial(bench.rate, run, no_processes)
                figures = alternate(arguments.runs, ours, peer.rate)
                title = f"{size} B, {100_000 // keys} per address and batch, {peer.semantic}"
                cases.append(
                    Case(f"{title}, vs {peer.name}", "1/s", *figures, higher_is_better=True)
                )
    report("kafka", cases, [])


if __name__ == "__main__":
    main()
