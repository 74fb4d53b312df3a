# SPDX-License-Identifier: Apache-2.0
import io
import os
import pty
import re
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from statefun.dev.progress import ProgressLine

ERASED = "\r\x1b[K"
"""What is written to a terminal before each drawing of the line."""


@contextmanager
def _terminal() -> Iterator[tuple[TextIO, int]]:
    """Yield a terminal to write to, and the descriptor from which its screen can be read."""
    screen, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        yield stream, screen
    os.close(screen)


def _drawn_on(screen: int) -> str:
    drawn = b""
    # One read may return only a part of the written text.
    while select.select([screen], [], [], 0.2)[0]:
        drawn += os.read(screen, 100_000)
    return drawn.decode()


def test_without_terminal_there_are_two_lines() -> None:
    """A file or pipe gets one line at the start, and one with the duration at the end."""
    stream = io.StringIO()

    with ProgressLine("starting Kafka", stream) as progress:
        progress.update("kafka-clients (1 of 2)")
        progress.update("kafka-clients (2 of 2)")

    first, last = stream.getvalue().splitlines()
    assert first == "starting Kafka ..."
    assert re.fullmatch(r"starting Kafka: done in \d+\.\d s", last)


def test_failure_is_not_called_done() -> None:
    """If the block raises, the last line has the word failed, and the error is propagated."""
    stream = io.StringIO()

    with pytest.raises(ZeroDivisionError), ProgressLine("dividing", stream):
        _ = 1 / 0

    assert re.search(r"dividing: failed after \d+\.\d s\n$", stream.getvalue())


def test_standard_error_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a stream, progress is written to standard error, and not to standard output."""
    with ProgressLine("waiting"):
        pass

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("waiting ...\n")


def test_terminal_shows_one_line_that_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows one line with the latest text, redrawn at intervals and replaced at the end."""
    monkeypatch.setenv("TERM", "xterm")

    with _terminal() as (stream, screen):
        with ProgressLine("starting Kafka", stream) as progress:
            progress.update("kafka-clients (1 of 2)")
            drawn = ""
            while drawn.count(ERASED) < 6:
                drawn += os.read(screen, 100_000).decode()
        drawn += _drawn_on(screen)

    *frames, last = drawn.split(ERASED)
    shown = [frame for frame in frames if "kafka-clients" in frame]
    assert len(shown) >= 4
    assert all(re.fullmatch(r".*  \d+ s  kafka-clients \(1 of 2\)", frame) for frame in shown)
    assert len({frame[:1] for frame in shown}) >= 3
    assert re.fullmatch(r"starting Kafka: done in \d+\.\d s\s+", last)
    assert drawn.count("\n") == 1


def test_long_texts_do_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that is wider than the terminal is cut, because a wrapped line cannot be erased."""
    monkeypatch.setenv("TERM", "xterm")

    with _terminal() as (stream, screen):
        with ProgressLine("starting Kafka", stream) as progress:
            progress.update("x" * 500)
        drawn = _drawn_on(screen)

    assert all(len(frame) < 80 for frame in drawn.split("\r\x1b[K"))


def test_dumb_terminal_is_not_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cannot erase a line is treated like a file."""
    monkeypatch.setenv("TERM", "dumb")

    with _terminal() as (stream, screen):
        with ProgressLine("starting Kafka", stream) as progress:
            progress.update("kafka-clients (1 of 2)")
        drawn = _drawn_on(screen)

    assert "\x1b" not in drawn
    assert drawn.count("\n") == 2


def test_updates_come_from_any_thread_and_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates from several threads do not mix in a line; updates after the end are ignored."""
    monkeypatch.setenv("TERM", "xterm")

    with _terminal() as (stream, screen):
        with ProgressLine("busy", stream) as progress:
            threads = [threading.Thread(target=progress.update, args=["step"]) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        progress.update("too late")
        drawn = _drawn_on(screen)

    assert all(re.fullmatch(r".  busy  0 s  step", f) for f in drawn.split("\r\x1b[K")[1:-1])
    assert "too late" not in drawn
