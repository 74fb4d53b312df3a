# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from local_servers import free_port
from submitting import EXAMPLES

pytestmark = [pytest.mark.spark, pytest.mark.takes(minutes=1)]


def test_the_demo_needs_no_kafka() -> None:
    """It greets by HTTP, and says how to do that by hand."""
    ports = {"PLAYGROUND_PORT": str(free_port()), "PLAYGROUND_EGRESS_PORT": str(free_port())}
    environment = os.environ | ports
    environment.pop("PYSPARK_SUBMIT_ARGS", None)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", "--playground"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    greetings = [line for line in done.stdout.splitlines() if "visit" in line]
    assert sorted(greetings) == [
        *(f"  Hello Ada, visit {number}" for number in (1, 2, 3)),
        "  Hello Alan, visit 1",
        *(f"  Hello Grace, visit {number}" for number in (1, 2)),
    ]
    assert f"localhost:{ports['PLAYGROUND_PORT']}/com.example.fns/greeter/Ada" in done.stdout
