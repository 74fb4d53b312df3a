# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from local_servers import free_port
from submitting import EXAMPLES

pytestmark = pytest.mark.spark


@pytest.fixture
def environment() -> dict[str, str]:
    """Return the environment of a demo with ports of its own."""
    ports = {"PLAYGROUND_PORT": str(free_port()), "PLAYGROUND_EGRESS_PORT": str(free_port())}
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    return inherited | ports


@pytest.mark.long(minutes=0.6)
def test_the_demo_needs_no_kafka(environment: dict[str, str]) -> None:
    """It greets by HTTP, and says how to do that by hand."""
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
    assert f"localhost:{environment['PLAYGROUND_PORT']}/com.example.fns/greeter/Ada" in done.stdout


def test_ctrl_c_ends_the_demo_in_one_line(environment: dict[str, str]) -> None:
    """All processes get the signal, as in a terminal."""
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "demo.py", "--playground"],
        env=environment | {"PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "Starting Spark" in line:
                break
        os.killpg(demo.pid, signal.SIGINT)
        rest = demo.stdout.read()

    assert demo.returncode == 130
    assert rest.endswith("Everything is stopped again, before its end.\n")
    assert "Traceback" not in rest
