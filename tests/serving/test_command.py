# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from local_servers import connected, free_port, served

from statefun.protocol.request_reply_pb2 import ToFunction
from statefun.serving import serve_command

PROGRAM = """
import asyncio
from pathlib import Path

import statefun

@statefun.function("test.fns/slow")
async def slow(ctx, message):
    import helper  # as late as this

    Path("called").touch()
    while not Path("go on").exists():
        await asyncio.sleep(helper.PAUSE)

if __name__ == "__main__":
    statefun.run()
"""


def test_a_server_that_is_to_end_answers_first(tmp_path: Path) -> None:
    """It says what it serves, no request is lost, and names that others gave it are refused."""
    port = free_port()
    asked = ToFunction()
    target = asked.invocation.target
    target.namespace, target.type, target.id = "test.fns", "slow", "Ada"
    asked.invocation.invocations.add().argument.typename = "test/none"
    (tmp_path / "helper.py").write_text("PAUSE = 0.01")
    with (
        served(tmp_path, port, PROGRAM, "--access-log") as process,
        closing(connected(port, process)) as client,
    ):
        client.request("GET", "/health")
        assert client.getresponse().read() == b"ok\n"
        runtime = {"Content-Type": "application/octet-stream"}
        client.request(
            "POST", "/", asked.SerializeToString(), {**runtime, "Host": "attacker.example"}
        )
        refusal = client.getresponse()
        assert (refusal.status, refusal.read().count(b"Host: attacker.example")) == (403, 1)
        assert not (tmp_path / "called").exists()
        client.request("POST", "/", asked.SerializeToString(), runtime)
        while not (tmp_path / "called").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        threading.Timer(0.2, (tmp_path / "go on").touch).start()
        response = client.getresponse()
        assert (response.status, response.read()) == (200, b"")
        process.wait()

    output = (tmp_path / "served.log").read_text()
    assert f"serving test.fns/slow\nat http://127.0.0.1:{port}/" in output
    assert '"GET /health HTTP/1.1" 200' in output
    assert "Traceback" not in output


ENDING = """
import asyncio

import statefun

async def end():
    raise SystemExit(4)

async def stay():
    try:
        await asyncio.Event().wait()
    finally:
        print("the task has ended", flush=True)

@statefun.function("test.fns/awaits")
async def awaits(ctx, message):
    await asyncio.create_task(end())

@statefun.function("test.fns/leaves")
async def leaves(ctx, message):
    tasks.extend([asyncio.create_task(end()), asyncio.create_task(stay())])

@statefun.function("test.fns/stops")
async def stops(ctx, message):
    asyncio.get_running_loop().stop()

tasks = []
"""


def test_no_function_ends_the_server(tmp_path: Path) -> None:
    """Neither its tasks nor what it does to the event loop; Ctrl-C ends the server, and cancels tasks that are left."""
    port = free_port()
    with (
        served(tmp_path, port, ENDING) as process,
        closing(connected(port, process)) as client,
    ):
        statuses = []
        for name in ("awaits", "leaves", "stops", "awaits"):
            asked = ToFunction()
            target = asked.invocation.target
            target.namespace, target.type, target.id = "test.fns", name, "Ada"
            asked.invocation.invocations.add().argument.typename = "test/none"
            runtime = {"Content-Type": "application/octet-stream"}
            client.request("POST", "/", asked.SerializeToString(), runtime)
            response = client.getresponse()
            response.read()
            statuses.append(response.status)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130

    assert statuses == [500, 200, 200, 500]
    output = (tmp_path / "served.log").read_text()
    assert output.count("the function of test.fns/awaits/Ada has failed") == 2
    assert output.count("the task has ended") == 1
    assert "KeyboardInterrupt" not in output


def has_address(host: str) -> bool:
    """Return whether a server can listen at an address of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        try:
            server.bind((host, 0))
        except OSError:
            return False
    return True


@pytest.mark.parametrize(
    ("host", "place"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")], ids=["IPv4", "IPv6"]
)
def test_the_url_is_one_that_a_client_can_use(tmp_path: Path, host: str, place: str) -> None:
    """It has the port that the system has chosen, and brackets around an IPv6 address."""
    if not has_address(host):
        pytest.skip(f"this machine has no address {host}")
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "statefun.cli",
        "serve",
        "app.py",
        "--host",
        host,
        "--port",
        "0",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving test.fns/slow\n"
            url = process.stdout.readline().split()[1]
            with urlopen(f"{url}health") as answer:  # noqa: S310 - the server's own
                assert answer.read() == b"ok\n"
        finally:
            process.terminate()

    assert url.startswith(f"http://{place}:")


def refused(folder: Path, program: str, *options: str, before: str = "pass") -> str:
    """Return what the command prints when it does not serve a program."""
    (folder / "app.py").write_text(program)
    code = f"import sys; {before}; from statefun.cli import main; sys.exit(main(sys.argv[1:]))"
    found = subprocess.run(
        [sys.executable, "-c", code, "serve", *(options or ["app.py"])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1
    assert found.stdout == ""
    assert "Traceback" not in found.stderr
    return found.stderr


def test_a_program_without_functions_is_refused(tmp_path: Path) -> None:
    """There would be nothing to serve."""
    text = refused(tmp_path, "import statefun")

    assert "app.py registers no function; decorate all functions with @function" in text


def test_a_program_with_several_registries_is_refused(tmp_path: Path) -> None:
    """A part of the functions alone would not do."""
    registry = "{0} = StatefulFunctions()\n{0}.register('test.fns/{0}', lambda c, m: None)\n"
    program = (
        f"from statefun import StatefulFunctions\n{registry.format('a')}{registry.format('b')}"
    )

    assert "app.py has several registries of functions" in refused(tmp_path, program)


def test_a_program_with_windows_is_refused(tmp_path: Path) -> None:
    """Nothing would ever reach their functions."""
    program = """
from datetime import timedelta

from statefun.windows import Tumbling, Window, WindowContext, windowed

class Clicks(Window):
    count: int = 0

@windowed("test.fns/clicks", Tumbling(timedelta(minutes=5)))
def add(ctx: WindowContext, url: str, clicks: Clicks) -> None:
    clicks.count += 1
"""

    text = refused(tmp_path, program)

    assert (
        "function test.fns/clicks has windows or joins streams, so it cannot be behind an endpoint"
        in text
    )


def test_a_program_with_classes_of_one_name_is_refused(tmp_path: Path) -> None:
    """As an application refuses it: values would be decoded as the wrong class."""
    for name, field in (("orders", "price"), ("stock", "count")):
        (tmp_path / f"{name}.py").write_text(
            f"import attrs\n\n@attrs.frozen\nclass Item:\n    {field}: int = 0\n"
        )
    program = "import orders, stock\nfrom statefun import Context, function\n" + "".join(
        f"@function('test.fns/{name}')\ndef {name}_function(ctx: Context, value: {name}.Item) -> None: ...\n"
        for name in ("orders", "stock")
    )

    text = refused(tmp_path, program)

    assert (
        "app.py cannot be served\n  orders.Item, which test.fns/orders takes, and stock.Item, which"
        in text
    )
    assert 'give one of them another typename: make_json_type("test.fns/Item", stock.Item)' in text


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    """By its name alone."""
    assert "there is no program nope.py" in refused(tmp_path, "", "nope.py")


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    """Before the command says that it serves."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
        text = refused(tmp_path, PROGRAM, "app.py", "--port", port)

    assert f"cannot listen at 127.0.0.1, port {port}: " in text


def test_uvicorn_is_an_extra(tmp_path: Path) -> None:
    """Without it the command says how to get it."""
    text = refused(tmp_path, PROGRAM, before="sys.modules['uvicorn'] = None")

    assert "pip install 'statefun[serve]'" in text


def test_a_task_that_does_not_end_does_not_hold_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function may have left one that ignores its cancellation; then not even Ctrl-C would help."""
    monkeypatch.setattr(serve_command, "_GRACE_SECONDS", 0.1)
    left: list[asyncio.Task[None]] = []

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    async def served() -> None:
        left.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0)

    async def scenario() -> None:
        await serve_command._served(served())  # noqa: SLF001 - a process would have to be killed
        assert not left[0].done()

    asyncio.run(scenario())
