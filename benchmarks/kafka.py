# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the greeter against the same function in other frameworks.

One broker, one input topic of two partitions, the same records for all: counted per key in
durable state, one record out for each one in. A figure is the rate at which records reach the
output topic, by the broker's clock, from a fifth of them on: starting up does not count.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from processor import Sampler
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
CASES = ((50_000, 100), (5_000, 100), (50_000, 1000))
"""The numbers of keys, and bytes of a value."""
ALO, EO = "at-least-once", "exactly-once"
topics = itertools.count()


class Bench:
    """A broker, and one topic of records that everybody reads."""

    def __init__(self, kafka: EmbeddedKafka, records: int, keys: int, size: int) -> None:
        self.kafka = kafka
        self.records = records
        self.source = f"in-{next(topics)}"
        self._costs: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)
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
        self, name: str, work: Callable[[str], None], processes: Callable[[str], list[list[str]]]
    ) -> float:
        """Return records per second that reach an output topic of this run's own.

        The CPU time of each record is recorded under ``name``.
        """
        sink = f"out-{next(topics)}"
        self.kafka.create_topic(
            sink, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
        )
        sampler = Sampler()
        with sampler.running(), running(processes(sink)):
            work(sink)
            times = self._times(sink)
        # A little before the end of the first fifth: behind it the next micro-batch begins, if there
        # are such, and comes only when it is complete.
        first = times[self.records // 5 - self.records // 1000]
        counted = max(1, sum(1 for moment in times if moment > first))
        costs = sampler.between(first / 1000, times[-1] / 1000)
        self._costs[name].append({of: cost / counted * 1e6 for of, cost in costs.items()})
        return counted / max(1, times[-1] - first) * 1000

    def cost(self, name: str) -> str:
        """Return the medians of the CPU time of a record since the last question, by purpose."""
        runs = self._costs.pop(name)[1:]  # the first one does not count
        medians = {
            of: statistics.median(run.get(of, 0) for run in runs) for run in runs for of in run
        }
        parts = ", ".join(f"{of} {cost:.1f}" for of, cost in sorted(medians.items()))
        return f"{name}: {sum(medians.values()):.1f} µs of CPU a record ({parts})"

    def _times(self, sink: str) -> list[int]:
        """Wait for all records; return when the broker appended them, in order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
            }
        )
        partitions = [TopicPartition(sink, number, 0) for number in range(PARTITIONS)]
        times: list[int] = []
        counted, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while len(times) < self.records:
            if counted < self.records:  # reading would take CPU time from who is measured
                time.sleep(0.5)
                before = counted
                counted = sum(consumer.get_watermark_offsets(each)[1] for each in partitions)
                moved = counted > before
                if counted >= self.records:
                    consumer.assign(partitions)
            else:
                messages = consumer.consume(10_000, timeout=1.0)
                times += [message.timestamp()[1] for message in messages if not message.error()]
                moved = bool(messages)
            if moved:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                sys.exit(f"only {len(times):,} of {self.records:,} records came out of {sink}")
        consumer.close()
        return sorted(times)


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
    work: Callable[[str], None] = nothing
    processes: Callable[[str], list[list[str]]] = no_processes


def peers(bench: Bench, folder: Path, wanted: Sequence[str]) -> Iterator[Peer]:
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
            yield Peer("Quix Streams", semantic, processes=commands)
    if "faust" in wanted:
        yield Peer("Faust", ALO, processes=processes("faust", "faust_app.py"))
    if "copy" in wanted:
        yield Peer("copy-only Spark", EO, run_copy(bench, folder))
    if "self" in wanted:
        yield Peer(f"itself {ALO}", EO, run_ours(bench, folder, ALO))


def main() -> None:
    """Compare for several sizes of records and numbers of messages per address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", default="quix,copy,self", help="of these and faust")
    parser.add_argument("--cases", default="0,1,2", help="numbers of the cases to measure")
    arguments = parser.parse_args()
    cases, notes = [], []
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="statefun-bench-") as name:
        folder = Path(name)
        for number in map(int, arguments.cases.split(",")):
            keys, size = CASES[number]
            bench = Bench(kafka, arguments.records, keys, size)
            for peer in peers(bench, folder, arguments.peers.split(",")):
                title = f"{size} B, {100_000 // keys} per address and batch, {peer.semantic}"
                run = run_ours(bench, folder, peer.semantic)
                ours = partial(bench.rate, "ours", run, no_processes)
                other = partial(bench.rate, peer.name, peer.work, peer.processes)
                figures = alternate(arguments.runs, ours, other)
                cases.append(
                    Case(f"{title}, vs {peer.name}", "1/s", *figures, higher_is_better=True)
                )
                notes += [f"{title}, {bench.cost(whose)}" for whose in ("ours", peer.name)]
    report("kafka", cases, notes)


if __name__ == "__main__":
    main()
