# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import io
import logging
import os
import pty
import select
from collections.abc import Iterator
from typing import TextIO

import pytest

from statefun.runtime.terminal.status_line import LogHandler, StatusLine, renews_lines


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TextIO, int]]:
    """Return a terminal to write to, and the descriptor on which its screen can be read."""
    monkeypatch.setenv("TERM", "xterm")
    screen, descriptor = pty.openpty()
    with os.fdopen(descriptor, "w") as stream:
        yield stream, screen
    os.close(screen)


def drawn_on(screen: int) -> str:
    """Return the output on a terminal."""
    drawn = b""
    while select.select([screen], [], [], 0.2)[0]:
        drawn += os.read(screen, 100_000)
    return drawn.decode().replace("\r\n", "\n")


def test_log_lines_stand_above_the_status(
    terminal: tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is erased for a line of the log, and drawn again below it."""
    stream, screen = terminal
    monkeypatch.setattr("sys.stderr", stream)
    line = StatusLine(stream)
    handler = LogHandler(line)

    line.show("one")
    handler.emit(logging.makeLogRecord({"msg": "said"}))
    line.show("two")
    line.clear()
    handler.emit(logging.makeLogRecord({"msg": "the end"}))

    erase = "\r\x1b[K"
    assert drawn_on(screen) == f"{erase}one{erase}said\none{erase}two{erase}the end\n"


def test_a_long_status_is_cut(terminal: tuple[TextIO, int]) -> None:
    """A line that wraps could not be erased."""
    stream, screen = terminal

    StatusLine(stream).show("x" * 500)

    assert 0 < drawn_on(screen).count("x") < 500


def test_only_terminals_renew_lines(
    terminal: tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither files nor terminals that cannot erase."""
    assert renews_lines(terminal[0])
    with open(os.devnull, "w", encoding="utf-8") as file:  # noqa: PTH123 - a device
        assert not renews_lines(file)
    monkeypatch.setenv("TERM", "dumb")
    assert not renews_lines(terminal[0])


def test_a_closed_terminal_does_not_stop_the_application(
    terminal: tuple[TextIO, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the status nor a line of the log raises an error."""

    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.EIO, "the terminal is closed")

    line = StatusLine(Gone())
    monkeypatch.setattr("sys.stderr", terminal[0])
    handler = LogHandler(line)

    line.show("one")
    handler.emit(logging.makeLogRecord({"msg": "said"}))
    line.clear()

    assert drawn_on(terminal[1]) == "said\n"
