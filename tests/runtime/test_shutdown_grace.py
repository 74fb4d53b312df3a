# SPDX-License-Identifier: Apache-2.0
"""Signals to an application with a long call, in each of the ways in which systemd, Compose, Kubernetes and people start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import attrs
import pytest
from harness import wait
from local_servers import free_port
from patience import SECONDS

from statefun.cli import main

PROGRAM = """
import asyncio
import pathlib
import statefun
from statefun import Context, State, function

MAY_END = pathlib.Path(__file__).with_name("may-end")


class Calls(State):
    ended: int = 0


@function("t/slow")
async def slow(ctx: Context, text: str, state: Calls) -> None:
    while not MAY_END.exists():
        await asyncio.sleep(0.05)
    state.ended += 1


if __name__ == "__main__":
    statefun.run()
"""
CONF = "--conf spark.statefun.shutdown-grace=1h"
COMMANDS = {
    "statefun run": [
        *(sys.executable, "-m", "statefun.cli", "run"),
        *("--master", "local[2]", *CONF.split(), "app.py"),
    ],
    "python": [sys.executable, "app.py"],
}

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("way", COMMANDS)]


@attrs.frozen
class Calling:
    """An application whose long call has left its micro-batch."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def checkpoint(self) -> str:
        """The folder of the checkpoint."""
        return str(self.folder / ".statefun" / "app")

    def wait_for_grace(self) -> None:
        """Wait until the application waits for its call."""
        text = "1 calls are not finished; the run waits up to 1:00:00 for their results"
        log = self.folder / "log"

        def has_said_so() -> bool:
            assert self.process.poll() is None, log.read_text()
            return text in log.read_text()

        wait(has_said_so)

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        return self.process.wait(SECONDS)


@contextmanager
def calling(folder: Path, way: str) -> Iterator[Calling]:
    """Start the application, and send it a message; kill it at the end of the block if it still runs."""
    port = free_port()
    (folder / "app.py").write_text(PROGRAM)
    module = f"kind: io.statefun.playground.v1/ingress\nspec:\n  port: {port}\n"
    (folder / "module.yaml").write_text(module)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment["PYSPARK_SUBMIT_ARGS"] = f"--master local[2] {CONF} pyspark-shell"
    if way != "python":
        del environment["PYSPARK_SUBMIT_ARGS"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            COMMANDS[way],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,  # with its JVM and workers
        )
    application = Calling(folder, process)
    try:
        wait(lambda: "playground is ready" in (folder / "log").read_text())
        client = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        client.request("PUT", "/t/slow/a", b"x")
        assert client.getresponse().status == 200
        calls = Path(application.checkpoint, "calls")
        wait(lambda: calls.exists() and any(calls.iterdir()))  # it has left its micro-batch
        yield application
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.long(minutes=0.8)
def test_a_long_call_gets_its_grace_after_sigterm(
    tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its result is committed before the application ends."""
    with calling(tmp_path, way) as application:
        application.process.send_signal(signal.SIGTERM)
        application.wait_for_grace()
        (tmp_path / "may-end").touch()
        assert application.end() == 143
    assert main(["state", "show", "t/slow/a", "--checkpoint", application.checkpoint]) == 0
    assert re.search("^ended .* 1$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.long(minutes=0.8)
def test_a_second_ctrl_c_ends_the_grace(tmp_path: Path, way: str) -> None:
    """In a terminal, which sends it to Spark as well; the call is made again at the next start."""
    with calling(tmp_path, way) as application:
        os.killpg(application.process.pid, signal.SIGINT)
        application.wait_for_grace()
        os.killpg(application.process.pid, signal.SIGINT)
        assert application.end() == 130
    assert "Traceback" not in (tmp_path / "log").read_text()
