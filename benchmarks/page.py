# SPDX-License-Identifier: Apache-2.0
"""What the live page costs an application: one that serves it, with and without a viewer, against one that does not.

A viewer is a process that sends the page's requests as a browser's tab does. Its own CPU time is not the application's.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_runs import EO, Bench, Work, greetings, run_ours
from report import report

from statefun.dev import EmbeddedKafka

VIEWER = """
import http.client, sys, time
PATHS = "status topology?limit=300 batches ingresses failures timers functions".split()
looks = 0
while True:
    begun = time.monotonic()
    client = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    try:
        for path in PATHS:
            client.request("GET", f"/{path}")
            answer = client.getresponse()
            answer.read()
            if answer.status != 200:
                sys.exit(f"GET /{path}: {answer.status}")
        looks += 1
        print(looks, time.monotonic() - begun, flush=True)
    except ConnectionRefusedError:
        pass  # it is not served yet
    client.close()
    time.sleep(2)
"""
"""Sends the requests of the page every two seconds; prints how many times it has, and how long each time took."""


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def served(bench: Bench, folder: Path, looks: list[float] | None) -> Work:
    """Return a run that serves the page; if ``looks`` is given, with a viewer, and how long each look took."""

    @contextmanager
    def work(sink: str) -> Iterator[None]:
        port = free_port()
        with run_ours(bench, folder, EO, admin=port)(sink):
            if looks is None:
                yield
                return
            command = [sys.executable, "-c", VIEWER, f"{port}"]
            viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                yield
            finally:
                viewer.kill()
                lines = viewer.communicate()[0].splitlines()
        if not lines:
            sys.exit("the viewer has seen nothing")
        looks.extend(float(line.split()[1]) for line in lines)

    return work


def main() -> None:
    """Compare an application that serves the page, with and without a viewer, with one that does not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    cases, notes = [], []
    looks: list[float] = []
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="statefun-bench-", ignore_cleanup_errors=True) as name,
    ):
        folder = Path(name)
        bench = Bench(kafka, greetings(arguments.records, arguments.keys, 100))
        for title, seen in (("nobody looks", None), ("a tab is open", looks)):
            ours = bench.side("with the page", served(bench, folder, seen))
            other = bench.side("without", run_ours(bench, folder, EO))
            compared = bench.compare(f"page, {title}", arguments.runs, ours, other)
            cases += compared[0]
            notes += compared[1]
    looks.sort()
    notes.append(f"a look takes {looks[len(looks) // 2] * 1000:.0f} ms (median of {len(looks)})")
    report("page", cases, notes)


if __name__ == "__main__":
    main()
