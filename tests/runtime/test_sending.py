# SPDX-License-Identifier: Apache-2.0
"""``statefun send`` to a real application: each message is handled once, in order, whatever is killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from harness import wait
from killed_application import running
from local_servers import free_port

from statefun.cli import main
from statefun.engine.address_keys import address_of
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.stored.committed_state import with_state
from statefun.sdk.errors import StatefunError

pytestmark = pytest.mark.spark

PROGRAM = """
import statefun
from statefun import Context, State, function


class Diary(State):
    lines: list[int] = []


@function("test.fns/diary")
def write(ctx: Context, line: int, state: Diary) -> None:
    assert ctx.caller is None
    state.lines = [*state.lines, line]


if __name__ == "__main__":
    statefun.run()
"""
DIARY = "test.fns/diary/Ada"


def lines(checkpoint: Path) -> list[int]:
    """Return the lines of the diary; empty while there is no state."""
    try:
        states = dict(with_state(Folder.at(checkpoint), None, list))
    except StatefunError:
        return []
    for key, content in states.items():
        if str(address_of(key)) == DIARY:
            (value,) = AddressState.FromString(content).values
            found: list[int] = json.loads(value.value)
            return found
    return []


@pytest.mark.long(minutes=0.5)
def test_each_message_is_handled_once_and_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the application runs, while its driver is dead, and after its next start."""
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "module.yaml").write_text(
        f"kind: io.statefun.playground.v1/ingress\nspec:\n  port: {free_port()}\n"
    )
    checkpoint = tmp_path / ".statefun" / "app"

    def send(number: int) -> None:
        options = ["--type", "io.statefun.types/int", "--checkpoint", str(checkpoint)]
        assert main(["send", DIARY, str(number), *options]) == 0

    with running(tmp_path):
        wait((checkpoint / "functions.json").exists)
        for number in range(40):
            send(number)
        assert "no application runs" not in capsys.readouterr().out
        wait(lambda: len(lines(checkpoint)) > 5)
        for number in range(40, 60):
            send(number)
    for number in range(60, 80):
        send(number)
    assert "no application runs" in capsys.readouterr().out
    with running(tmp_path) as process:
        for number in range(80, 100):
            send(number)
        wait(lambda: len(lines(checkpoint)) >= 100)
        process.send_signal(signal.SIGTERM)
        process.wait()

    assert lines(checkpoint) == [*range(100)]
    assert list((checkpoint / "sent").glob("*.message")) == []
