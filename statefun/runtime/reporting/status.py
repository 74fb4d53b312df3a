# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of a run: in one line of a terminal that is rewritten, or in a log line per minute."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta

import attrs
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statefun.module.model import KafkaIngress
from statefun.runtime.ingress.positions import positions, records_read, total
from statefun.runtime.ingress.stopping import Offsets
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.terminal.status_line import StatusLine

logger = logging.getLogger("statefun")

_INTERVAL = timedelta(minutes=1)
"""The time between two log lines about the progress."""
_WINDOW = timedelta(seconds=10)
"""The period over which the rates on a terminal are averaged, as a micro-batch may take seconds."""
_ROUNDED_FROM = 10
"""Rates below this number are shown with a decimal."""


@attrs.frozen
class _Sample:
    """How many records a run has read and published up to a point in time."""

    time: float
    """The time in seconds of the monotonic clock."""
    read: int
    published: int


class Status:
    """Shows the user how many records are read and published per second, and how many wait.

    Args:
        summary: the counts of the run.
        ingresses: Kafka's ingresses in the order of the query's sources.
        stops: by ingress, the offsets before which it stops; None for an ingress that does not stop.
        connectors: the number of other ingresses, whose sources come after Kafka's.
        line: the terminal's status line; None to write into the log.
        ui: the address of Spark's own page about the query.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the line has so many parts
        self,
        summary: Summary,
        ingresses: Sequence[KafkaIngress],
        stops: Sequence[Offsets | None],
        connectors: int,
        line: StatusLine | None,
        ui: str | None,
    ) -> None:
        self._summary = summary
        self._ingresses = ingresses
        self._stops = stops
        self._others = slice(len(ingresses), len(ingresses) + connectors)
        self._line = line
        self._ui = ui
        self._read: int | None = None
        self._lag: int | None = None
        self._batch = -1
        self._batch_at = 0.0
        # The first micro-batch may have ended before Spark reports any progress.
        self._samples = deque([_Sample(time.monotonic(), 0, 0)])
        self._interval = (_INTERVAL if line is None else _WINDOW).total_seconds()
        self._next_log = time.monotonic() + self._interval

    def begin(self, history: Iterable[StreamingQueryProgress]) -> bool:
        """Find out how many records earlier runs have read, so that rates are about this run's records only.

        Args:
            history: Spark's progress reports of this run, the oldest first.

        Returns:
            Whether the reports show the number; if not, this method must be called again.
        """
        for progress in history:
            ingress_positions = list(positions(self._ingresses, self._stops, progress))
            others = progress.sources[self._others]
            if not (
                any(position.read for position in ingress_positions)
                or records_read(source.endOffset for source in others)
            ):
                continue
            # A new checkpoint has no earlier offsets, and a topic's first record may have any offset.
            before = sum(
                total(position.start) or total(position.read) - source.numInputRows
                for position, source in zip(ingress_positions, progress.sources, strict=False)
            ) + records_read(source.startOffset for source in others)
            self._samples = deque([attrs.evolve(each, read=before) for each in self._samples])
            return True
        return False

    def staged(self, batch: int) -> None:
        """Store the number and the time of the newest micro-batch, to show them."""
        self._batch, self._batch_at = batch, time.monotonic()

    def show(self, progress: StreamingQueryProgress | None) -> None:
        """Show the progress; write it into the log only if the last log line is old enough.

        Args:
            progress: the query's newest progress report; None before the first one.
        """
        if progress is not None:
            self._count(progress)
        now = time.monotonic()
        sample = _Sample(now, self._read or 0, self._summary.egress_records)
        self._samples.append(sample)
        while now - self._samples[1].time > self._interval:
            self._samples.popleft()
        if self._line is not None:
            self._line.show(self._sentence(sample))
        elif now >= self._next_log:
            logger.info("%s", self._sentence(sample))
            self._next_log = now + self._interval

    def close(self) -> None:
        """Erase the terminal's status line, if there is one."""
        if self._line is not None:
            self._line.clear()

    def _count(self, progress: StreamingQueryProgress) -> None:
        """Take from a progress report how many records are read, and how many wait in Kafka."""
        ingress_positions = list(positions(self._ingresses, self._stops, progress))
        others = records_read(source.endOffset for source in progress.sources[self._others])
        self._read = sum(total(position.read) for position in ingress_positions) + others
        self._lag = sum(total(position.lags) for position in ingress_positions)

    def _lag_text(self) -> str:
        """Return the text that says how many records wait in Kafka; empty if only connectors read records."""
        if not self._ingresses and self._others.start < self._others.stop:
            return ""
        return "lag ?" if self._lag is None else f"lag {self._lag:,}"

    def _calls_text(self) -> str:
        """Return the text about calls that go on after their micro-batches; empty if there are none."""
        count, oldest = self._summary.calls_under_way, self._summary.oldest_call
        return f"calls {count:,}, oldest {oldest.total_seconds():.0f} s" if count else ""

    def _sentence(self, now: _Sample) -> str:
        """Return the text of the status line or log line."""
        first = self._samples[0]
        seconds = max(now.time - first.time, 1.0)
        read = now.read - first.read if self._read is not None else 0
        failures = self._summary.skipped + self._summary.dead_letters + self._summary.retries
        parts = [
            f"in {_rate(read / seconds)}",
            f"out {_rate((now.published - first.published) / seconds)}",
            self._lag_text(),
            f"backlog {self._summary.backlog:,}" if self._summary.backlog else "",
            self._calls_text(),
            "no batch yet"
            if self._batch < 0
            else f"batch {self._batch}, {now.time - self._batch_at:.0f} s ago",
            f"failures {failures:,}",
            self._ui or "",
        ]
        return " | ".join(filter(None, parts))


def _rate(per_second: float) -> str:
    """Format a number of records per second.

    >>> _rate(0), _rate(0.125), _rate(24_600.3)
    ('0/s', '0.1/s', '24,600/s')
    """
    digits = 1 if 0 < per_second < _ROUNDED_FROM else 0
    return f"{per_second:,.{digits}f}/s"
