# SPDX-License-Identifier: Apache-2.0
"""Log records and printed lines of functions, in Python workers.

Workers log at the levels that the user's code has set in the driver, in the format of the run, and each
record names the address and the micro-batch. All workers write to the same standard error: each line is written in one piece, so that
lines of several workers do not mix. On a cluster, that is the standard error of executors; the driver gets the lines, too, with the
outcomes of tasks.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext

import attrs

from statefun.sdk.log_lines import FunctionLogLimit, JsonLines, TextLines
from statefun.sdk.printable import without_surrogates

_logger = logging.getLogger(__name__)
_MOST_KEPT = 256 * 1024
"""The largest number of characters of lines that a task sends to the driver."""


@attrs.frozen
class LogLevels:
    """The levels of the driver's loggers, so that workers log at the same levels."""

    by_logger: Mapping[str, int] = attrs.field(factory=dict)
    """The levels that are set in the driver, by the names of loggers; the root logger has the name ``root``.

    If no levels are given, :meth:`apply` does not change how the process logs."""

    as_json: bool = False
    """Whether workers log lines of JSON."""

    for_driver: bool = False
    """Whether workers keep their lines for the driver, as their standard error is not the driver's."""

    @classmethod
    def of_program(
        cls, leave_out: Collection[str], *, as_json: bool = False, for_driver: bool = False
    ) -> LogLevels:
        """Return the levels that are set on the loggers of this process.

        Args:
            leave_out: the first parts of the names of loggers whose levels are left out.
            as_json: whether workers log lines of JSON.
            for_driver: whether workers keep their lines for the driver.
        """
        root = logging.getLogger()
        levels = {"root": root.level}
        for name, logger in list(root.manager.loggerDict.items()):  # other threads may add some
            if isinstance(logger, logging.Logger) and logger.level:
                if name.partition(".")[0] in leave_out:
                    continue
                levels[name] = logger.level
        return cls(levels, as_json, for_driver)

    def apply(self, batch: int) -> None:
        """Make this worker log at these levels; each log record then names the micro-batch ``batch``.

        If the user's modules have added a handler to this worker's root logger, logging stays as it is.
        """
        if not self.by_logger:
            return
        handler = _handler()
        if handler is None:
            _print_whole_lines()
            if logging.getLogger().handlers:
                return
            handler = _Handler(as_json=self.as_json)
            logging.getLogger().addHandler(handler)
        handler.begin(batch, for_driver=self.for_driver)
        for name, level in self.by_logger.items():
            logging.getLogger(None if name == "root" else name).setLevel(level)


def take_lines() -> Sequence[str]:
    """Return the lines for the driver that this worker has logged since the last call."""
    handler = _handler()
    return () if handler is None else handler.take()


def _handler() -> _Handler | None:
    handlers = logging.getLogger().handlers
    return next((each for each in handlers if isinstance(each, _Handler)), None)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg] # a plain class in Python 3.10
    """Prints log records with the address and micro-batch in which they were logged."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._lines = JsonLines() if as_json else TextLines()
        self._limit = FunctionLogLimit()
        self.setFormatter(self._lines)
        self.addFilter(self._limit)
        self._keeps = False
        """Whether lines are kept for the driver."""
        self._kept: list[str] = []
        self._room = _MOST_KEPT
        """How many further characters are kept."""
        self._left_out = 0

    def begin(self, batch: int, *, for_driver: bool) -> None:
        """Name another micro-batch in the lines from now on, and report lines that were left out.

        If a place in the code logs too many lines, some are left out, and its next line has their number. This method
        logs the number for places that have stopped logging.

        Args:
            batch: the number of the micro-batch.
            for_driver: whether lines are kept for the driver.
        """
        self._keeps = for_driver
        for place, count in self._limit.take_left_out():
            _logger.warning("%s lines of ctx.logger at %s were left out", f"{count:,}", place)
        self._lines.batch = batch

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record, and keep it for the driver."""
        super().emit(record)
        if self._keeps:
            self._keep(self.format(record))

    def take(self) -> Sequence[str]:
        """Return the lines that were kept for the driver, and drop them."""
        with self.lock or nullcontext():  # threads of long calls log, too
            kept, self._kept, left_out = self._kept, [], self._left_out
            self._room, self._left_out = _MOST_KEPT, 0
        if left_out:
            kept.append(f"{left_out:,} further lines are in the standard error of an executor")
        return kept

    def _keep(self, line: str) -> None:
        if len(line) > self._room:
            self._left_out += 1
            return
        self._room -= len(line)
        self._kept.append(without_surrogates(line))


def _print_whole_lines() -> None:
    """Make this process write each printed line in one piece; Spark starts workers with unbuffered output."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
