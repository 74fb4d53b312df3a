# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the same records for several frameworks, and the rates at which they do it.

One broker, an input topic of two partitions for each run: records are counted per key in durable state. The
greeter sends one record out for each one in; other functions send others. The first records, a fifth of
them, warm a framework up. The others are in the topic as well, in a transaction that is still open, so that nobody
can read them. Once all results of the first ones are out, the transaction is committed, and the time begins. It ends
when the last result is in the output topic, by the broker's clock: so a figure contains everything that a record
needs, and no start.
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
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import attrs
import numpy as np
from applications import running_application
from confluent_kafka import Consumer, Producer, TopicPartition
from processor import Sampler
from pyspark.sql import DataFrame, SparkSession
from report import Case, alternate

from statefun import Context, IntType, KafkaEgressMessage, Message, StatefulFunctions, ValueSpec
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

PEERS = Path(__file__).resolve().parent / "peers"
BUILD = PEERS.parents[1] / "build" / "bench"
PARTITIONS = 2
PATIENCE_SECONDS = 300
ALO, EO = "at-least-once", "exactly-once"
BUSY = "busy cores"
topics = itertools.count()

Work = Callable[[str], AbstractContextManager[None]]
"""What is measured: it begins to fill a topic, and ends when the block does."""


class Record(NamedTuple):
    """A record of the input topic."""

    key: bytes
    timestamp: int = 0
    """In milliseconds since the epoch; 0 for the present."""
    partition: int = -1
    """-1 for the partition of the key."""


@attrs.frozen
class Workload:
    """The records that everybody reads, and how many results they have."""

    warm_up: Sequence[Record]
    counted: Sequence[Record]
    warm_up_results: int
    counted_results: int
    size: int
    """The size of a record's value, in bytes."""


def random_keys(records: int, keys: int) -> list[bytes]:
    """Return a key for each record, the same ones each time."""
    return [b"%d" % key for key in np.random.default_rng(1).integers(keys, size=records)]


def greetings(records: int, keys: int, size: int) -> Workload:
    """Return records with ``keys`` keys for the greeter, which sends one result for each record."""
    each = [Record(key) for key in random_keys(records, keys)]
    first, rest = each[: records // 5], each[records // 5 :]
    return Workload(first, rest, len(first), len(rest), size)


class Side(NamedTuple):
    """One of two systems that are compared."""

    name: str
    measure: Callable[[], float]
    """Returns the records per second of a run that calls :meth:`Bench.rate` with this name."""


@attrs.frozen
class Goals:
    """The ratios to reach in a comparison, where there are any."""

    rate: float | None = None
    cpu: float | None = None
    """Of the CPU time of a record."""


class Bench:
    """A broker, and the records that everybody reads.

    Args:
        kafka: the broker.
        workload: the records of each run.
        topic_config: the configuration of the input topics.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        workload: Workload,
        topic_config: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kafka = kafka
        self.source = self.sink = ""
        """The topics of the present run, or of the last one."""
        self._workload = workload
        self._topic_config = topic_config
        self._costs: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)

    def rate(self, name: str, work: Work) -> float:
        """Return the records per second that ``work`` brings to an output topic of this run's own.

        The CPU time of each record is recorded under ``name``.
        """
        number = next(topics)
        self.source, self.sink = f"in-{number}", f"out-{number}"
        sink, workload = self.sink, self._workload
        self.kafka.create_topic(self.source, partitions=PARTITIONS, config=self._topic_config)
        self.kafka.create_topic(
            sink, partitions=PARTITIONS, config={"message.timestamp.type": "LogAppendTime"}
        )
        self._produce(self._producer(), workload.warm_up)
        held_back = self._producer({"transactional.id": sink, "transaction.timeout.ms": 900_000})
        held_back.init_transactions()
        held_back.begin_transaction()
        self._produce(held_back, workload.counted)
        sampler = Sampler()
        with sampler.running(), work(sink), closing(self.consumer(sink)) as consumer:
            self._append_times(consumer, 0, workload.warm_up_results)
            written = self._end(consumer)
            begin = time.time()
            held_back.commit_transaction()
            times = self._append_times(consumer, written, workload.counted_results)
        if times[0] < begin:
            sys.exit(f"{name} reads records of transactions that are not committed")
        seconds, counted = times[-1] - begin, len(workload.counted)
        costs = sampler.between(begin, times[-1])
        self._costs[name].append(
            {of: cost / counted * 1e6 for of, cost in costs.items()}
            | {BUSY: sum(costs.values()) / seconds}
        )
        return counted / seconds

    def _producer(self, options: Mapping[str, object] = MappingProxyType({})) -> Producer:
        servers = {"bootstrap.servers": self.kafka.bootstrap_servers}
        return Producer({**servers, "linger.ms": 50, **options})

    def _produce(self, producer: Producer, records: Iterable[Record]) -> None:
        value = b"x" * self._workload.size
        for key, timestamp, partition in records:
            while True:
                try:
                    producer.produce(
                        self.source, value, key, partition=partition, timestamp=timestamp
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()

    def side(self, name: str, work: Work) -> Side:
        """Return a side of a comparison that only runs, and is not looked at afterwards."""
        return Side(name, partial(self.rate, name, work))

    def compare(
        self, title: str, runs: int, ours: Side, other: Side, goals: Goals = Goals()
    ) -> tuple[list[Case], list[str]]:
        """Measure both sides in turn; compare their rates and the CPU time of a record, and say where it goes."""
        rates = alternate(runs, ours.measure, other.measure)
        # As in the rates, the first run does not count.
        our_costs, other_costs = (self._costs.pop(side.name)[1:] for side in (ours, other))
        cases = [
            Case(title, "1/s", *rates, higher_is_better=True, goal=goals.rate),
            Case(
                f"{title}: CPU of a record",
                "s",
                _seconds(our_costs),
                _seconds(other_costs),
                goal=goals.cpu,
            ),
        ]
        notes = [
            f"{title}, {_cost(ours.name, our_costs)}",
            f"{title}, {_cost(other.name, other_costs)}",
        ]
        return cases, notes

    def consumer(self, sink: str) -> Consumer:
        """Return a consumer of all that is committed in an output topic; it also says where partitions end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
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
                moved = any(not message.error() for message in messages)
            if moved:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                sys.exit(f"only {len(times):,} of {count:,} results came out")
        return sorted(times)

    def _end(self, consumer: Consumer) -> int:
        """Return the sum of the end offsets of the output topic; offsets count markers of transactions, too."""
        return sum(consumer.get_watermark_offsets(each)[1] for each in consumer.assignment())


def _seconds(runs: Iterable[Mapping[str, float]]) -> list[float]:
    """Return the CPU time of a record, run by run."""
    return [(sum(run.values()) - run[BUSY]) / 1e6 for run in runs]


def _cost(name: str, runs: Sequence[Mapping[str, float]]) -> str:
    """Return the medians of the CPU time of a record, by purpose, and of busy cores."""
    medians = {of: statistics.median(run.get(of, 0) for run in runs) for run in runs for of in run}
    busy = medians.pop(BUSY)
    costs = [(of, f"{cost:.1f}") for of, cost in sorted(medians.items())]
    parts = ", ".join(f"{of} {cost}" for of, cost in costs if cost.strip("-") != "0.0")
    total = sum(medians.values())
    return f"{name}: {total:.1f} µs of CPU a record ({parts}); {busy:.2f} cores busy"


def read_by_spark(session: SparkSession, bench: Bench, records_per_batch: int) -> DataFrame:
    """Return the records of the present run's input topic, as Spark's own source reads them."""
    return (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.kafka.bootstrap_servers)
        .option("subscribe", bench.source)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", records_per_batch)
        .load()
    )


@contextmanager
def written_by_spark(rows: DataFrame, bench: Bench, folder: Path) -> Iterator[None]:
    """Write keys and values to the present run's output topic during the block, with Spark's own sink."""
    query = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bench.kafka.bootstrap_servers)
        .option("topic", bench.sink)
        .option("checkpointLocation", str(folder / bench.sink))
        .start()
    )
    try:
        yield
    finally:
        query.stop()


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


def run_ours(bench: Bench, folder: Path, semantic: str, **options: object) -> Work:
    """Return a run of our greeter, with further settings."""

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
        settings = Settings.resolve({}, None, checkpoint=folder / sink, **options)
        with running_application(Application(module, functions(sink), settings)):
            yield

    return work
