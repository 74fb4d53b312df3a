# SPDX-License-Identifier: Apache-2.0
"""From Kafka to Kafka: the greeter against the same function in other frameworks.

See ``kafka_runs`` for what is measured. ``flink.py`` compares with Flink StateFun.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from kafka_runs import (
    ALO,
    EO,
    PARTITIONS,
    PEERS,
    Bench,
    Goals,
    Work,
    greetings,
    read_by_spark,
    run_ours,
    running,
    venv,
    written_by_spark,
)
from report import report

from statefun.dev import EmbeddedKafka
from statefun.runtime.spark.session import open_session

REQUIREMENTS = {"quix": "quixstreams==3.28.1", "faust": "faust-streaming==0.15.3"}
CASES = ((50_000, 100), (5_000, 100), (50_000, 1000))
"""The numbers of keys, and bytes of a value."""
GOALS = (Goals(2.0, 1.7), Goals(3.0, 2.5), Goals(1.3, 1.3))
"""For each case, against Quix Streams, exactly once."""
QUIX = "Quix Streams"


def run_copy(bench: Bench, folder: Path) -> Work:
    """Return a run that copies the topic with Spark alone: the lower bound on Spark."""

    def work(_sink: str) -> AbstractContextManager[None]:
        session = open_session(debug=False, state_partitions=2)
        records = read_by_spark(session, bench, records_per_batch=100_000)
        return written_by_spark(records.select("key", "value"), bench, folder)

    return work


class Peer(NamedTuple):
    """Something that ours is compared with."""

    name: str
    semantic: str
    """Of our egress in this comparison."""
    work: Work


def peers(bench: Bench, folder: Path, wanted: Sequence[str]) -> Iterator[Peer]:
    """Return all systems to compare with ours."""

    def processes(peer: str, script: str, *options: str) -> Work:
        def work(sink: str) -> AbstractContextManager[None]:
            python = venv(peer, REQUIREMENTS[peer])
            fixed = [python, str(PEERS / script), bench.kafka.bootstrap_servers]
            return running(
                [*fixed, bench.source, sink, sink, *options, f"{folder}/{sink}-{number}"]
                for number in range(PARTITIONS)
            )

        return work

    if "quix" in wanted:
        for semantic in (ALO, EO):
            yield Peer(QUIX, semantic, processes("quix", "quix.py", semantic))
    if "faust" in wanted:
        yield Peer("Faust", ALO, processes("faust", "faust_app.py"))
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
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        wanted = arguments.peers.split(",")
        notes += [f"{peer}: {needs}" for peer, needs in REQUIREMENTS.items() if peer in wanted]
        for number in map(int, arguments.cases.split(",")):
            keys, size = CASES[number]
            bench = Bench(kafka, greetings(arguments.records, keys, size))
            for peer in peers(bench, folder, wanted):
                title = f"{size} B, {100_000 // keys} per address and batch, {peer.semantic}"
                compared = bench.compare(
                    f"{title}, vs {peer.name}",
                    arguments.runs,
                    bench.side("ours", run_ours(bench, folder, peer.semantic)),
                    bench.side(peer.name, peer.work),
                    GOALS[number] if peer.name == QUIX and peer.semantic == EO else Goals(),
                )
                cases += compared[0]
                notes += compared[1]
    report("kafka", cases, notes)


if __name__ == "__main__":
    main()
