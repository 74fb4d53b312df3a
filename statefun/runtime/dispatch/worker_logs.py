# SPDX-License-Identifier: Apache-2.0
"""Log records and printed lines of functions, in Python workers.

Workers log at the levels that the program has set, and each record names the address and the
micro-batch. Workers share the stream of errors: each line is written to it in one piece.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Collection, Mapping

import attrs

from statefun.sdk.current import current_address

_FORMAT = "%(levelname)s %(place)s%(name)s: %(message)s"


@attrs.frozen
class LogLevels:
    """The levels of the program's loggers."""

    by_logger: Mapping[str, int] = attrs.field(factory=dict)
    """The levels that the program has set, by the names of loggers; the root logger has the name ``root``.

    Empty in a process that is no worker: its logging is not changed."""

    @classmethod
    def of_program(cls, leave_out: Collection[str]) -> LogLevels:
        """Return the levels of loggers that this process has set.

        Args:
            leave_out: the first parts of the names of loggers that do not belong to the program.
        """
        root = logging.getLogger()
        levels = {"root": root.level}
        for name, logger in root.manager.loggerDict.items():
            if isinstance(logger, logging.Logger) and logger.level:
                if name.partition(".")[0] in leave_out:
                    continue
                levels[name] = logger.level
        return cls(levels)

    def apply(self, batch: int) -> None:
        """Make this worker log as the program does; ``batch`` is the number of the micro-batch.

        If the user's modules have added a handler, no other handler is added.
        """
        if not self.by_logger:
            return
        root = logging.getLogger()
        handler = next((each for each in root.handlers if isinstance(each, _Handler)), None)
        if handler is None:
            _print_whole_lines()
            if root.handlers:
                return
            handler = _Handler()
            root.addHandler(handler)
        handler.batch = batch
        for name, level in self.by_logger.items():
            logging.getLogger(None if name == "root" else name).setLevel(level)


class _Handler(logging.StreamHandler):  # type: ignore[type-arg] # a plain class in Python 3.10
    """Prints log records with the address and micro-batch in which they were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = 0
        self.setFormatter(logging.Formatter(_FORMAT))

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a log record, with the address and the micro-batch."""
        address = current_address.get()
        record.place = "" if address is None else f"{address} (batch {self.batch}) "
        return super().format(record)


def _print_whole_lines() -> None:
    """Make this process write each printed line in one piece: Spark starts workers without buffers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
