# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of a long step in a terminal."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import TextIO, final

from statefun.runtime.terminal.status_line import StatusLine, renews_lines

_REDRAW_EVERY = timedelta(milliseconds=100)


@final
class ProgressLine:
    """Shows a line with a spinner during its ``with`` block; without a terminal, a line before and after.

    >>> with ProgressLine("starting the broker", sys.stdout) as progress:
    ...     progress.update("org.apache.kafka#kafka-clients;4.3.1 (12 of 40)")
    starting the broker ...
    starting the broker: done in 0.0 s

    ``update`` may be called from any thread, also after the block has ended.
    """

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        """Store the title and the stream; the line is shown once the ``with`` block begins.

        Args:
            title: The name of the step, without a full stop.
            stream: The stream to write to; by default standard error.
        """
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        self._line = StatusLine(self._stream)
        self._spins = renews_lines(self._stream)
        self._frames = itertools.cycle("|/-\\")
        self._text = ""
        self._started = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._spinner = threading.Thread(target=self._spin, name="progress", daemon=True)

    def update(self, text: str) -> None:
        """Show the current activity, ``text``, at the end of the line; show nothing without a terminal."""
        with self._lock:
            self._text = text
            if self._spins and self._started and not self._ended.is_set():
                self._draw()

    def __enter__(self) -> ProgressLine:
        self._started = time.monotonic()
        if self._spins:
            self._spinner.start()
        else:
            self._write(f"{self._title} ...\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        outcome = "done in" if kind is None else "failed after"
        line = f"{self._title}: {outcome} {self._seconds():.1f} s\n"
        with self._lock:
            self._ended.set()
            self._line.clear()
            self._write(line)
        if self._spins:
            self._spinner.join()

    def _spin(self) -> None:
        while not self._ended.wait(_REDRAW_EVERY.total_seconds()):
            with self._lock:
                if not self._ended.is_set():
                    self._draw()

    def _draw(self) -> None:
        parts = [next(self._frames), self._title, f"{self._seconds():.0f} s", self._text]
        self._line.show("  ".join(filter(None, parts)))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _seconds(self) -> float:
        return time.monotonic() - self._started
