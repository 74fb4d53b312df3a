# SPDX-License-Identifier: Apache-2.0
"""``statefun top``, with the admin API of an application whose query does not run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from admin_api import TOKEN, Served, served
from harness import wait
from local_servers import free_port
from patience import SECONDS

from statefun.cli import main
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.admin.admin_tokens import VARIABLE
from statefun.runtime.reporting.figures import EgressFigures, PartitionFigures


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    """Serve the API of an application that has greeted five times, and failed once."""
    with served(tmp_path) as found:
        figures = found.figures
        figures.is_up = True
        calls = Outcome.FunctionCounts(
            typename="test/greeter", invocations=5, durations=[5, *[0] * 14], seconds=0.01
        )
        failed = Outcome.Failed(typename="test/greeter", code="SF301", count=1)
        figures.staged([Outcome(functions=[calls], failed=[failed])])
        figures.partitions = [
            PartitionFigures("test/in", "users", "0", "g", 1000, 0, 0),
            PartitionFigures("test/in", "users", "1", "g", 10, 7, 0),
        ]
        figures.egresses = {"test/out": EgressFigures(5, 2, 1)}
        yield found


def shown(capsys: pytest.CaptureFixture[str], api: Served) -> list[list[str]]:
    """Return the words of the lines of one table."""
    assert main(["top", f"{api.port}", "--once", "--every", "100ms"]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_functions_partitions_and_egresses_are_shown(
    api: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what waits; the partition with the most records that are not read comes first."""
    state, rates, *lines = shown(capsys, api)
    assert state[0] == "running,"
    assert " ".join(rates).startswith("in 0/s | out 0/s | lag 7 | backlog 0 | ")
    assert ["test/greeter", "0.0", "5", "2.000", "ms", "0", "SF301", "1"] in lines
    users = [line for line in lines if "users" in line]
    assert users == [
        ["test/in", "users", "1", "10", "7"],
        ["test/in", "users", "0", "1,000", "0"],
    ]
    assert ["test/out", "running", "0.0", "5", "2"] in lines


def test_a_rate_is_what_has_come_between_two_looks(
    api: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each look counts from the one before it."""
    done = threading.Event()

    def greet() -> None:
        calls = Outcome.FunctionCounts(
            typename="test/greeter", invocations=1, durations=[1, *[0] * 14]
        )
        while not done.wait(0.005):
            api.figures.staged([Outcome(functions=[calls])])

    thread = threading.Thread(target=greet)
    thread.start()
    try:
        wait(lambda: api.figures.functions["test/greeter"].invocations > 10)
        (greeter,) = (line for line in shown(capsys, api) if line[:1] == ["test/greeter"])
    finally:
        done.set()
        thread.join()
    assert float(greeter[1]) > 0


def test_json_has_the_answers_of_the_api_and_the_rates(
    api: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each look."""
    assert main(["top", f"{api.port}", "--once", "--every", "100ms", "--json"]) == 0
    look = json.loads(capsys.readouterr().out)
    assert look["status"]["state"] == "RUNNING"
    (greeter,) = look["functions"]
    assert (greeter["invocations"], greeter["invocations_per_second"]) == (5, 0)
    assert [part["lag"] for part in look["ingresses"][0]["partitions"]] == [0, 7]
    (egress,) = look["egresses"]
    assert (egress["name"], egress["records_per_second"]) == ("test/out", 0)


ROWS, COLUMNS = 24, 80


@pytest.mark.parametrize("size", [(ROWS, COLUMNS), (0, 0)], ids=["known", "unknown"])
def test_a_look_fits_into_the_terminal(api: Served, size: tuple[int, int]) -> None:
    """The first line, which says whether the application runs, stays in sight: no line is wider than the terminal."""
    counts = [
        Outcome.FunctionCounts(typename=f"test/f{n}", invocations=1, durations=[0] * 15)
        for n in range(40)
    ]
    api.figures.staged([Outcome(functions=counts)])
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "statefun.cli", "top", f"{api.port}", "--every", "100ms"],
        stdin=theirs,
        stdout=theirs,
        env={name: text for name, text in os.environ.items() if name not in {"COLUMNS", "LINES"}},
    ) as top:
        screen = b""
        while screen.count(b"\x1b[H") < 2 and select.select([ours], [], [], SECONDS)[0]:
            screen += os.read(ours, 65_536)
        top.kill()
    os.close(theirs)
    os.close(ours)

    lines = screen.split(b"\x1b[H\x1b[J")[1].decode().strip().split("\r\n")
    assert max(map(len, lines)) <= COLUMNS
    assert len(lines) == ROWS - 1
    assert " ".join(lines[1:3]).endswith("dead letters 0")


@pytest.mark.parametrize("token", ["", "another-token-of-some-length"])
def test_a_token_comes_from_the_environment(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    token: str,
) -> None:
    """Without the right one, the error names the variable, and no token."""
    (tmp_path / "tokens").write_text(TOKEN)
    with served(tmp_path, admin_tokens=tmp_path / "tokens") as api:
        monkeypatch.setenv(VARIABLE, token)
        assert main(["top", f"{api.port}", "--once"]) == 1
        error = capsys.readouterr().err
        assert f"set the environment variable {VARIABLE} to one of the API's tokens" in error
        assert token == "" or token not in error
        monkeypatch.setenv(VARIABLE, TOKEN)
        assert shown(capsys, api)


def test_no_application_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how an application serves the API."""
    port = free_port()
    assert main(["top", f"{port}"]) == 1
    assert capsys.readouterr().err == (
        f"statefun: [SF700] no application answers at http://127.0.0.1:{port}: Connection refused; start it with "
        f"--conf spark.statefun.admin={port}, or give the address that its setting admin has\n"
    )


@pytest.mark.parametrize("content", [b"{}", b"[]", b"null", b"[1]", b"hello"])
def test_another_server_is_one_sentence(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if its answers are JSON."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", f"{len(content)}")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", free_port()), Other) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert main(["top", f"{server.server_port}", "--once"]) == 1
        finally:
            server.shutdown()
            thread.join()
    assert "is not the admin API of a statefun application; give the" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["eight"], ["--every", "0s"], ["--every", "soon"]])
def test_wrong_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As everywhere, with the exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(["top", *arguments])
    assert ended.value.code == 2
    assert "argument" in capsys.readouterr().err
