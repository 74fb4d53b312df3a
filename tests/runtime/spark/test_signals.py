# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from patience import SECONDS

PROGRAM = """
import statefun
from statefun import Context, function


@function("t/f")
def f(ctx: Context, text: str) -> None:
    pass


if __name__ == "__main__":
    statefun.run()
"""
MODULE = """
kind: io.statefun.kafka.v1/ingress
spec:
  id: t/in
  address: 127.0.0.1:{port}
  consumerGroupId: t
  topics: [{{topic: in, valueFormat: {{type: text}}, targets: [t/f]}}]
"""


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_sparks_jvm_before_the_query_runs_prints_no_stack_trace(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The JVM notices that the program has ended, which is what the JVM has waited for."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        (tmp_path / "app.py").write_text(PROGRAM)
        (tmp_path / "module.yaml").write_text(MODULE.format(port=silent.getsockname()[1]))
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "statefun.cli", "run", "--master", "local[1]", "app.py"],
                cwd=tmp_path,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                stdout=log,
                stderr=log,
            )
        try:
            silent.accept()[0].close()  # the start asks the broker, which never answers
            process.send_signal(number)
            process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
    text = (tmp_path / "log").read_text()
    assert "statefun: stopped" in text
    assert "Exception" not in text
