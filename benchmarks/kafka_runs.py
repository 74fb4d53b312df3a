# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the same records for several frameworks, and the rates at which they do it.

One broker, one input topic of two partitions: records are counted per key in durable state, one
record out for each one in. A figure is the rate at which records reach the output topic, by the
broker's clock, from a fifth of them on: starting up does not count.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from processor import Sampler

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

PEERS = Path(__file__).resolve().parent / "peers"
BUILD = PEERS.parents[1] / "build" / "bench"
PARTITIONS = 2
PATIENCE_SECONDS = 120
ALO, EO = "at-least-once", "exactly-once"
topics = itertools.count()

Work = Callable[[str], AbstractContextManager[None]]
"""What is measured: it begins to fill a topic, and ends when the block does."""


class Bench:
    """A broker, and one topic of records that everybody reads."""

    def __init__(self, kafka: EmbeddedKafka, records: int, keys: int, size: int) -> None:
        self.kafka = kafka
        self.records = records
        self.source = f"in-{next(topics)}"
        self._begun = 0.0
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

    def rate(self, name: str, work: Work, *, whole: bool = False) -> float:
        """Return records per second that reach an output topic of this run's own.

        The CPU time of each record is recorded under ``name``. With ``whole`` the time counts from
        the moment that :meth:`begin` was called, and else from a fifth of the records on.
        """
        sink = f"out-{next(topics)}"
        self.kafka.create_topic(
            sink, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
        )
        sampler = Sampler()
        with sampler.running(), work(sink):
            times = self._times(sink)
        if whole:
            costs = sampler.between(self._begun, times[-1] / 1000)
            costs = {of: cost / self.records * 1e6 for of, cost in costs.items()}
            self._costs[name].append(costs)
            return self.records / (times[-1] / 1000 - self._begun)
        # A little before the end of the first fifth: behind it the next micro-batch begins, if there
        # are such, and comes only when it is complete.
        first = times[self.records // 5 - self.records // 1000]
        counted = max(1, sum(1 for moment in times if moment > first))
        costs = sampler.between(first / 1000, times[-1] / 1000)
        self._costs[name].append({of: cost / counted * 1e6 for of, cost in costs.items()})
        return counted / max(1, times[-1] - first) * 1000

    def begin(self) -> None:
        """Count from now on: what a framework needs is running."""
        self._begun = time.time()

    def cost(self, name: str) -> str:
        """Return the medians of the CPU time of a record since the last question, by purpose."""
        runs = self._costs.pop(name)[1:]  # the first one does not count
        medians = {
            of: statistics.median(run.get(of, 0) for run in runs) for run in runs for of in run
        }
        costs = [(of, f"{cost:.1f}") for of, cost in sorted(medians.items())]
        parts = ", ".join(f"{of} {cost}" for of, cost in costs if cost.strip("-") != "0.0")
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
def running(commands: Iterable[list[str]]) -> Iterator[None]:
    """Run commands in the background until the block ends."""
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, env=peers_variables())
        for command in commands
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def peers_variables() -> dict[str, str]:
    """Return the environment variables for peers, to which our package does not exist."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def venv(peer: str, *requirements: str, forced: str = "") -> str:
    """Return the Python of a peer's own virtual environment, made when it is missing.

    ``forced`` is installed without what it requires.
    """
    folder = BUILD / "venvs" / peer
    python = str(folder / "bin" / "python")
    if not folder.exists():
        pip = [python, "-m", "pip", "install", "-q"]
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([*pip, *requirements], check=True)
        if forced:
            subprocess.run([*pip, "--no-deps", forced], check=True)
    return python


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


def run_ours(bench: Bench, folder: Path, semantic: str) -> Work:
    """Return a run of our greeter until everything is published."""

    @contextmanager
    def work(sink: str) -> Iterator[None]:
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
        yield

    return work
