# SPDX-License-Identifier: Apache-2.0
"""The request handler against the published package's, per invocation, on the same requests.

The published package comes with the protobuf that it asks for, 3.20, which is pure Python, and with
the newest one that it happens to work with.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial

from kafka_runs import PEERS, peers_variables, venv
from report import Case, alternate, report

SDK = "apache-flink-statefun==3.3.0"
PROTOBUFS = ("3.20.3", "4.25.8")


def seconds(python: str, kind: str, batch: int) -> float:
    """Return the CPU time of an invocation."""
    command = [python, str(PEERS / "sdk_handler.py"), kind, str(batch)]
    variables = os.environ if python == sys.executable else peers_variables()
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
    return float(said.stdout)


def main() -> None:
    """Compare plain and coroutine functions at several numbers of messages in a request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    cases = []
    for protobuf in PROTOBUFS:
        python = venv(f"sdk-{protobuf}", f"protobuf=={protobuf}", forced=SDK)
        for kind in ("plain", "async"):
            for batch in (1, 10, 100):
                ours = partial(seconds, sys.executable, kind, batch)
                other = partial(seconds, python, kind, batch)
                title = f"{kind}, {batch} in a request, vs published with protobuf {protobuf}"
                cases.append(Case(title, "s", *alternate(arguments.runs, ours, other)))
    report("sdk", cases)


if __name__ == "__main__":
    main()
