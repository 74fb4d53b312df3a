# SPDX-License-Identifier: Apache-2.0
"""Log records and printed lines of functions, in Python workers.

Workers log at the levels that the user's code has set in the driver, in the format of the run, and each
record names the address and the micro-batch. All workers write to the same standard error: each line is written in one piece, so that
lines of several workers do not mix.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Collection, Mapping

import attrs

from statefun.sdk.log_lines import FunctionLogLimit, JsonLines, TextLines

_logger = logging.getLogger(__name__)


@attrs.frozen
class LogLevels:
    """The levels of the driver's loggers, so that workers log at the same levels."""

    by_logger: Mapping[str, int] = attrs.field(factory=dict)
    """The levels that are set in the driver, by the names of loggers; the root logger has the name ``root``.

    If no levels are given, :meth:`apply` does not change how the process logs."""

    as_json: bool = False
    """Whether workers log lines of JSON."""

    @classmethod
    def of_program(cls, leave_out: Collection[str], *, as_json: bool = False) -> LogLevels:
        """Return the levels that are set on the loggers of this process.

        Args:
            leave_out: the first parts of the names of loggers whose levels are left out.
            as_json: whether workers log lines of JSON.
        """
        root = logging.getLogger()
        levels = {"root": root.level}
        for name, logger in root.manager.loggerDict.items():
            if isinstance(logger, logging.Logger) and logger.level:
                if name.partition(".")[0] in leave_out:
                    continue
                levels[name] = logger.level
        return cls(levels, as_json)

    def apply(self, batch: int) -> None:
        """Make this worker log at these levels; each log record then names the micro-batch ``batch``.

        If the user's modules have added a handler to this worker's root logger, logging stays as it is.
        """
        if not self.by_logger:
            return
        root = logging.getLogger()
        handler = next((each for each in root.handlers if isinstance(each, _Handler)), None)
        if handler is None:
            _print_whole_lines()
            if root.handlers:
                return
            handler = _Handler(as_json=self.as_json)
            root.addHandler(handler)
        handler.begin(batch)
        for name, level in self.by_logger.items():
            logging.getLogger(None if name == "root" else name).setLevel(level)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg] # a plain class in Python 3.10
    """Prints log records with the address and micro-batch in which they were logged."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._lines = JsonLines() if as_json else TextLines()
        self._limit = FunctionLogLimit()
        self.setFormatter(self._lines)
        self.addFilter(self._limit)

    def begin(self, batch: int) -> None:
        """Log from now on in a micro-batch; log how many lines were left out of places that log no more."""
        for place, count in self._limit.take_left_out():
            _logger.warning("%s lines of ctx.logger at %s were left out", f"{count:,}", place)
        self._lines.batch = batch


def _print_whole_lines() -> None:
    """Make this process write each printed line in one piece; Spark starts workers with unbuffered output."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
