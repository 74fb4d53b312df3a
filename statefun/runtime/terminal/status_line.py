# SPDX-License-Identifier: Apache-2.0
"""A status line of a terminal, which stays below all other lines and is rewritten."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, final

_DEFAULT_WIDTH = 80
_ERASE = "\r\x1b[K"


@final
class StatusLine:
    """The last line of a terminal; it may be used from any thread.

    Args:
        stream: a stream to the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = ""
        self._is_lost = False
        self._lock = threading.RLock()

    def show(self, text: str) -> None:
        """Replace the text of the status line; the text is cut to the width of the terminal."""
        with self._lock:
            # A line that wraps could not be erased again.
            self._text = text[: _width(self._stream) - 1]
            self._write(_ERASE + self._text)

    def clear(self) -> None:
        """Erase the status line."""
        with self._lock:
            if self._text:
                self._text = ""
                self._write(_ERASE)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the status line while the block prints whole lines above it."""
        with self._lock:
            if self._text:
                self._write(_ERASE)
            yield
            if self._text:
                self._write(self._text)

    def _write(self, text: str) -> None:
        """Write to the terminal, unless it is closed or another process is in its foreground."""
        if self._is_lost:
            return
        try:
            if _is_ours(self._stream):
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):
            self._is_lost = True


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]  # a plain class in Python 3.10
    """Prints log records above a status line."""

    def __init__(self, line: StatusLine) -> None:
        super().__init__()
        self.line = line

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record above the status line."""
        with self.line.hidden():
            super().emit(record)


def renews_lines(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a line can be erased."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _is_ours(stream: TextIO) -> bool:
    """Return whether this process is in the foreground of its terminal, and so may write to it."""
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # the stream is no controlling terminal of this process
        return True


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        pass
    try:  # spark-submit stands between the program and its terminal
        descriptor = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return _DEFAULT_WIDTH
    try:
        return os.get_terminal_size(descriptor).columns or _DEFAULT_WIDTH
    except OSError:
        return _DEFAULT_WIDTH
    finally:
        os.close(descriptor)
