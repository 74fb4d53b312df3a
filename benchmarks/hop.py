# SPDX-License-Identifier: Apache-2.0
"""Latency of messages between functions: a chain in which each function sends to the next one.

A hop is the time from one function's call to the next one's, by the machine's clock: one
micro-batch, with the outbox, the commit and the discovery of what is to be delivered. Compared
with the same chain where Spark evaluates the operator through pandas.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Case, alternate, report

from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    ValueSpec,
    message_builder,
)
from statefun.dev import EmbeddedKafka
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings
from statefun.spec import parse_module

WARM_UP = 10
"""So many hops at the start of a chain do not count."""
chains = itertools.count()


def functions(topic: str, hops: int) -> StatefulFunctions:
    """Return a function that notes the time and sends on, so many times."""
    registry = StatefulFunctions()

    @registry.bind("bench/hop", [ValueSpec("seen", IntType)])
    def hop(ctx: Context, message: Message) -> None:
        now = time.time()
        ctx.storage.seen = (ctx.storage.seen or 0) + 1
        number = message.as_int() if ctx.caller else 0
        ctx.send(KafkaEgressMessage("bench/out", topic=topic, value=repr(now)))
        if number < hops:
            ctx.send(message_builder("bench/hop", f"hop {number}", int_value=number + 1))

    return registry


def chain(kafka: EmbeddedKafka, folder: Path, hops: int, found: list[float], path: str) -> float:
    """Run one chain; return the median seconds of its hops, and add all of them to ``found``."""
    name = f"chain-{next(chains)}"
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        kafka.create_topic(topic)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(source, b"", b"start")
    producer.flush()
    module = parse_module(
        "kind: io.statefun.kafka.v1/ingress\n"
        f"spec: {{id: bench/in, address: '{kafka.bootstrap_servers}', consumerGroupId: {name},\n"
        f"  startupPosition: {{type: earliest}}, topics: [{{topic: {source},\n"
        "  valueType: bench/bytes, targets: [bench/hop]}]}\n"
        "---\n"
        "kind: io.statefun.kafka.v1/egress\n"
        f"spec: {{id: bench/out, address: '{kafka.bootstrap_servers}'}}\n"
    )
    settings = Settings.resolve(
        {}, None, checkpoint=folder / name, available_now=True, dispatch=path
    )
    Application(module, functions(sink, hops), settings).run()

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    consumer.assign([TopicPartition(sink, 0, 0)])
    times: list[float] = []
    while len(times) <= hops:
        times += [float(message.value() or b"") for message in consumer.consume(100, timeout=1.0)]
    consumer.close()
    latencies = np.diff(sorted(times))[WARM_UP:]
    found.extend(latencies)
    return float(np.median(latencies))


def main() -> None:
    """Measure chains in turn, with either way to call functions."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hops", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    ours: list[float] = []
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory(prefix="statefun-bench-") as name:
        measure = partial(chain, kafka, Path(name), arguments.hops)
        figures = alternate(
            arguments.runs,
            lambda: measure(ours, "arrow"),
            lambda: measure([], "pandas"),
        )
    counted = np.array(ours[-arguments.runs * (arguments.hops - WARM_UP) :]) * 1000
    p50, p99 = np.percentile(counted, [50, 99])
    notes = [f"latency per hop: p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(counted)} hops"]
    report("hop", [Case("one hop, Arrow vs pandas dispatch", "s", *figures)], notes)


if __name__ == "__main__":
    main()
