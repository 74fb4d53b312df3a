# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the same records for several frameworks, and the rates at which they do it.

One broker, an input topic of two partitions for each run: records are counted per key in durable state, one
record out for each one in. The first fifth of the records warms a framework up. The others are in the topic
as well, in a transaction that is still open, so that nobody can read them. Once all records of the first fifth
are out, the transaction is committed, and the time begins. It ends when the last record is in the output
topic, by the broker's clock: so a figure contains everything that a record needs, and no start.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np
from applications import running_application
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
BUSY = "busy cores"
topics = itertools.count()

Work = Callable[[str], AbstractContextManager[None]]
"""What is measured: it begins to fill a topic, and ends when the block does."""


class Bench:
    """A broker, and the records that everybody reads.

    Args:
        kafka: the broker.
        records: how many records a run has.
        keys: how many keys the records have.
        size: the size of a record's value, in bytes.
    """

    def __init__(self, kafka: EmbeddedKafka, records: int, keys: int, size: int) -> None:
        self.kafka = kafka
        self.source = ""
        """The input topic of the present run."""
        self._warm_up = records // 5
        self._counted = records - self._warm_up
        self._value = b"x" * size
        self._keys = [b"%d" % key for key in np.random.default_rng(1).integers(keys, size=records)]
        self._costs: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)

    def rate(self, name: str, work: Work) -> float:
        """Return the records per second that ``work`` brings to an output topic of this run's own.

        The CPU time of each record is recorded under ``name``.
        """
        number = next(topics)
        self.source, sink = f"in-{number}", f"out-{number}"
        self.kafka.create_topic(self.source, partitions=PARTITIONS)
        self.kafka.create_topic(
            sink, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
        )
        self._produce(self._producer(), self._keys[: self._warm_up])
        held_back = self._producer({"transactional.id": sink, "transaction.timeout.ms": 900_000})
        held_back.init_transactions()
        held_back.begin_transaction()
        self._produce(held_back, self._keys[self._warm_up :])
        sampler = Sampler()
        with sampler.running(), work(sink), closing(self._consumer(sink)) as consumer:
            self._append_times(consumer, 0, self._warm_up)
            written = self._end(consumer)
            begin = time.time()
            held_back.commit_transaction()
            times = self._append_times(consumer, written, self._counted)
        if times[0] < begin:
            sys.exit(f"{name} reads records of transactions that are not committed")
        seconds = times[-1] - begin
        costs = sampler.between(begin, times[-1])
        self._costs[name].append(
            {of: cost / self._counted * 1e6 for of, cost in costs.items()}
            | {BUSY: sum(costs.values()) / seconds}
        )
        return self._counted / seconds

    def _producer(self, options: Mapping[str, object] = MappingProxyType({})) -> Producer:
        servers = {"bootstrap.servers": self.kafka.bootstrap_servers}
        return Producer({**servers, "linger.ms": 50, **options})

    def _produce(self, producer: Producer, keys: Sequence[bytes]) -> None:
        for key in keys:
            while True:
                try:
                    producer.produce(self.source, self._value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    def cost(self, name: str) -> str:
        """Return the medians of the CPU time of a record since the last question, by purpose, and of busy cores."""
        runs = self._costs.pop(name)[1:]  # the first one does not count
        medians = {
            of: statistics.median(run.get(of, 0) for run in runs) for run in runs for of in run
        }
        busy = medians.pop(BUSY)
        costs = [(of, f"{cost:.1f}") for of, cost in sorted(medians.items())]
        parts = ", ".join(f"{of} {cost}" for of, cost in costs if cost.strip("-") != "0.0")
        total = sum(medians.values())
        return f"{name}: {total:.1f} µs of CPU a record ({parts}); {busy:.2f} cores busy"

    def _consumer(self, sink: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(sink, number, 0) for number in range(PARTITIONS)])
        return consumer

    def _append_times(self, consumer: Consumer, begin: int, count: int) -> list[float]:
        """Wait for the next ``count`` records; return when the broker appended them, in order.

        The records are read only when all of them must be there: reading takes CPU time from the framework.

        Args:
            consumer: has read all earlier records.
            begin: what :meth:`_end` returned before the first of the records was written.
            count: the number of records.
        """
        times: list[float] = []
        written, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while len(times) < count:
            if written < count:
                time.sleep(0.5)
                before, written = written, self._end(consumer) - begin
                moved = written > before
            else:
                messages = consumer.consume(10_000, timeout=1.0)
                times += [
                    message.timestamp()[1] / 1000 for message in messages if not message.error()
                ]
                moved = bool(messages)
            if moved:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                sys.exit(f"only {len(times):,} of {count:,} records came out")
        return sorted(times)

    def _end(self, consumer: Consumer) -> int:
        """Return the sum of the end offsets of the output topic; offsets count markers of transactions, too."""
        return sum(consumer.get_watermark_offsets(each)[1] for each in consumer.assignment())


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
    """Return a run of our greeter."""

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
        settings = Settings.resolve({}, None, checkpoint=folder / sink)
        with running_application(Application(module, functions(sink), settings)):
            yield

    return work
