# SPDX-License-Identifier: Apache-2.0
"""Remote functions: the published SDK's server, called by our runtime and by Flink StateFun 3.3.

Both have the same module.yaml, servers, records and Kafka; ``kafka_runs`` says what a figure is. The
servers are as the SDK's own documents have them: pure-Python protobuf, behind uvicorn.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from applications import running_application
from flink import SIZE, Flink, module_of, published, run_flink, served, tuned
from kafka_runs import EO, Bench, Goals, greetings
from report import report

from statefun import StatefulFunctions
from statefun.dev import EmbeddedKafka
from statefun.module.loader import parse_module
from statefun.runtime.application import Application
from statefun.runtime.settings import Settings

PER_ADDRESS = (2, 20)
"""Messages for an address in a run."""
GOALS = Goals(rate=2.0)


@contextmanager
def run_ours(bench: Bench, folder: Path, server: list[str], sink: str) -> Iterator[None]:
    """Run our runtime with the servers of its function."""
    with served(server, sink) as port:
        module = parse_module(module_of(bench, sink, port))
        settings = Settings.resolve({}, None, checkpoint=folder / sink)
        with running_application(Application(module, StatefulFunctions(), settings)):
            yield


def main() -> None:
    """Compare at two sizes of batches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers", default="published")
    arguments = parser.parse_args()
    if not shutil.which("mvn"):
        sys.exit("no mvn: Maven fetches Flink; install it (apt-get install maven)")
    server = {"published": published, "tuned": tuned}[arguments.servers]()
    cases, notes = [], []
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
        Flink(Path(name)) as flink,
    ):
        for per_address in PER_ADDRESS:
            bench = Bench(
                kafka,
                greetings(arguments.records, arguments.records // per_address, SIZE),
            )
            ours = partial(run_ours, bench, Path(name), server)
            theirs = partial(run_flink, bench, flink, server)
            peer = f"Flink StateFun, {arguments.servers}"
            compared = bench.compare(
                f"functions elsewhere, {per_address} per address, {EO}, vs {peer}",
                arguments.runs,
                bench.side("ours", ours),
                bench.side(peer, theirs),
                GOALS,
            )
            cases += compared[0]
            notes += compared[1]
    report("remote", cases, notes)


if __name__ == "__main__":
    main()
