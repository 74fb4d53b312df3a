# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: tumbling windows of event time against those of Quix Streams, and of Spark itself.

See ``kafka_runs`` for what is measured. Each record is counted in the window of five minutes and the key that it
belongs to; each window and key has one result. Event times rise evenly, and a window has a tenth of the records.
One record in a hundred is late by half an hour, which is twelve micro-batches: so its window is closed for
everybody, although watermarks do not move at the same moments. All results are compared with those of pandas.

The first fifth ends with a record at its end in each partition, which closes its windows; the rest ends with
records an hour later.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import attrs
import numpy as np
import pandas as pd
from applications import running_application
from confluent_kafka import KafkaError
from kafka import REQUIREMENTS
from kafka_runs import (
    EO,
    PARTITIONS,
    PEERS,
    Bench,
    Record,
    Side,
    Work,
    Workload,
    random_keys,
    read_by_spark,
    running,
    venv,
    written_by_spark,
)
from pyspark.sql import functions as sql
from report import report

from statefun import KafkaEgressMessage, StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings
from statefun.runtime.spark.session import keep_checkpoint_locally, open_session
from statefun.sdk.times import to_epoch_millis
from statefun.windows import Tumbling, Window, WindowContext, windowed

MINUTE = 60_000
WINDOW = 5 * MINUTE
WINDOWS = 10
BATCHES = 20
LATE = 0.01
"""The share of records that are late."""
LATE_BY = 30 * MINUTE
BEGIN = to_epoch_millis(datetime(2026, 1, 1, tzinfo=timezone.utc))
SIZE = 100
Result = tuple[str, int, int]
"""The key, the start of the window, and the count."""


def clicks(records: int, keys: int) -> tuple[Workload, Counter[Result]]:
    """Return the records, and their results as pandas computes them."""
    times = BEGIN + np.arange(records) * WINDOWS * WINDOW // records
    counted = records // 5
    is_late = np.random.default_rng(2).random(records) < LATE
    is_late[:counted] = False
    times[is_late] -= LATE_BY
    each = list(map(Record, random_keys(records, keys), times.tolist()))
    first = [*each[:counted], *_in_each_partition(BEGIN + WINDOWS * WINDOW // 5)]
    rest = [*each[counted:], *_in_each_partition(BEGIN + WINDOWS * WINDOW + 60 * MINUTE)]
    before, results = _closed(first).total(), _closed([*first, *rest])
    return Workload(first, rest, before, results.total() - before, SIZE), results


def _in_each_partition(time: int) -> list[Record]:
    return [Record(b"partition %d" % each, time, each) for each in range(PARTITIONS)]


def _closed(records: list[Record]) -> Counter[Result]:
    """Return the results of the windows that records close, the results of late records left out."""
    frame = pd.DataFrame(records)
    frame["start"] = frame.timestamp // WINDOW * WINDOW
    newest = frame.timestamp.cummax()
    frame = frame[frame.start + WINDOW > newest]
    frame = frame[frame.start + WINDOW <= newest.max()]
    counts = frame.groupby(["key", "start"]).size()
    return Counter((key.decode(), start, count) for (key, start), count in counts.items())


class Clicks(Window):
    """The clicks of a window."""

    count: int = 0


def functions(sink: str) -> StatefulFunctions:
    """Return the function with windows."""
    registry = StatefulFunctions()

    @windowed("bench/clicks", Tumbling(timedelta(minutes=5)), functions=registry)
    def add(ctx: WindowContext, value: str, clicks: Clicks) -> None:  # noqa: ARG001 - as handlers are
        clicks.count += 1

    @add.on_close
    def close(ctx: WindowContext, clicks: Clicks) -> None:
        start, end = (int(time.timestamp() * 1000) for time in ctx.window)
        text = json.dumps({"start": start, "end": end, "value": clicks.count})
        ctx.send(KafkaEgressMessage("bench/out", topic=sink, key=ctx.address.id, value=text))

    return registry


@attrs.frozen
class Comparison:
    """Runs everybody, and compares the results with those of pandas."""

    bench: Bench
    folder: Path
    batch: int
    """The number of records in a micro-batch of Spark."""
    expected: Counter[Result]
    _wrong: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    _stored: dict[str, list[int]] = attrs.field(factory=lambda: defaultdict(list))

    def rate(self, name: str, work: Work, stored: str) -> float:
        """Return records per second; ``stored`` is the pattern of folders with state below the folder of a run."""
        rate = self.bench.rate(name, work)
        found = self._results()
        wrong = (found - self.expected).total() + (self.expected - found).total()
        self._wrong[name] += wrong
        folders = self.folder.glob(f"{self.bench.sink}{stored}")
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        self._stored[name].append(sum(file.stat().st_size for file in files))
        return rate

    def note(self, name: str) -> str:
        """Return what is known of all runs since the last question, besides rates and costs."""
        wrong, stored = self._wrong.pop(name), statistics.median(self._stored.pop(name))
        equal = f"{wrong:,} results are not equal to" if wrong else "all results are equal to"
        return (
            f"{name}: {equal} those of pandas; {stored / 2**20:.0f} MiB of state on disk at the end"
        )

    def _results(self) -> Counter[Result]:
        found: Counter[Result] = Counter()
        ended = 0
        with closing(self.bench.consumer(self.bench.sink)) as consumer:
            while ended < PARTITIONS:
                for message in consumer.consume(10_000, timeout=1.0):
                    if error := message.error():
                        ended += error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - its only name
                        continue
                    value = json.loads(message.value() or b"")
                    key = (message.key() or b"").decode()
                    found[key, int(value["start"]), int(value["value"])] += 1
        return found

    def run_ours(self) -> Work:
        """Return a run of our windows."""

        @contextmanager
        def work(sink: str) -> Iterator[None]:
            address = self.bench.kafka.bootstrap_servers
            module = parse_module(
                "kind: io.statefun.kafka.v1/ingress\n"
                f"spec: {{id: bench/in, address: '{address}', startupPosition: {{type: earliest}},\n"
                f"  consumerGroupId: {sink}, topics: [{{topic: {self.bench.source},\n"
                "  valueFormat: {type: text}, targets: [bench/clicks]}], eventTime: {outOfOrder: 0s}}\n"
                "---\n"
                "kind: io.statefun.kafka.v1/egress\n"
                f"spec: {{id: bench/out, address: '{address}', deliverySemantic: {{type: {EO}}}}}\n"
            )
            settings = Settings.resolve(
                {}, None, checkpoint=self.folder / sink, records_per_batch=self.batch
            )
            with running_application(Application(module, functions(sink), settings)):
                yield

        return work

    def run_quix(self) -> Work:
        """Return a run of Quix Streams, with a process for each partition."""

        def work(sink: str) -> AbstractContextManager[None]:
            command = [venv("quix", REQUIREMENTS["quix"]), str(PEERS / "quix_windows.py")]
            command += [self.bench.kafka.bootstrap_servers, self.bench.source, sink, sink]
            return running(
                [*command, f"{self.folder}/{sink}-{number}"] for number in range(PARTITIONS)
            )

        return work

    def run_spark(self) -> Work:
        """Return a run of Spark's own windows, with the settings of our session."""

        def work(_sink: str) -> AbstractContextManager[None]:
            session = open_session(debug=False, state_partitions=PARTITIONS)
            keep_checkpoint_locally(session)
            records = read_by_spark(session, self.bench, self.batch)
            counts = (
                records.withWatermark("timestamp", "0 seconds")
                .groupBy(sql.window("timestamp", "5 minutes"), "key")
                .count()
            )
            value = sql.struct(
                sql.unix_millis("window.start").alias("start"),
                sql.unix_millis("window.end").alias("end"),
                sql.col("count").alias("value"),
            )
            rows = counts.select("key", sql.to_json(value).alias("value"))
            return written_by_spark(rows, self.bench, self.folder)

        return work


def main() -> None:
    """Compare for several numbers of keys."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keys", default="100000", help="numbers of keys to measure with")
    parser.add_argument("--peers", default="quix,spark")
    arguments = parser.parse_args()
    cases, notes = [], [REQUIREMENTS["quix"]]
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        for keys in map(int, arguments.keys.split(",")):
            workload, expected = clicks(arguments.records, keys)
            # The broker would delete records of past times.
            bench = Bench(kafka, workload, {"retention.ms": "-1"})
            comparison = Comparison(bench, Path(name), arguments.records // BATCHES, expected)
            ours = partial(comparison.rate, "ours", comparison.run_ours(), "/state")
            everybody: dict[str, tuple[str, Work, str]] = {
                "quix": ("Quix Streams", comparison.run_quix(), "-*"),
                "spark": ("Spark's own windows, at-least-once", comparison.run_spark(), "/state"),
            }
            per_window = len(workload.counted) / workload.counted_results
            for peer, work, stored in map(everybody.__getitem__, arguments.peers.split(",")):
                other: Callable[[], float] = partial(comparison.rate, peer, work, stored)
                title = f"windows of {per_window:.1f} records, {keys:,} keys, {EO}, vs {peer}"
                compared = bench.compare(
                    title, arguments.runs, Side("ours", ours), Side(peer, other)
                )
                cases += compared[0]
                notes += compared[1]
                notes += [f"{title}, {comparison.note(whose)}" for whose in ("ours", peer)]
    report("kafka_windows", cases, notes)


if __name__ == "__main__":
    main()
