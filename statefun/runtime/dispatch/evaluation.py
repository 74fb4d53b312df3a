# SPDX-License-Identifier: Apache-2.0
"""Calls functions with the rows of groups in one task, and collects the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.failures import DispatchError
from statefun.engine.groups import Group
from statefun.engine.running_calls import CallRunner
from statefun.engine.span_details import SpanDetails
from statefun.engine.trace_journal import TraceJournal
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.dispatch.announcement import current_announcement
from statefun.runtime.dispatch.present_traces import attaching
from statefun.runtime.dispatch.worker_logs import take_lines
from statefun.runtime.rows.trace_entries import details_stream, trace_stream
from statefun.runtime.spark_internals.task import batch_number
from statefun.sdk.errors import PlatformError


class Evaluation:
    """Calls functions with the rows of groups in one task, and collects the outcomes.

    Args:
        operator: the :class:`~statefun.runtime.dispatch.operator.Operator`, which starts the evaluation.
        runner: runs calls that may leave their micro-batch; None if each micro-batch waits for its calls.
    """

    def __init__(self, operator: Any, runner: CallRunner | None) -> None:
        self._segments = operator.segments
        self._full_bytes: int = operator.segments.full_bytes
        self._effects = Effects()
        self._outcomes: list[Outcome] = []
        self._details: SpanDetails | None = None
        self._journal: TraceJournal | None = None
        if operator.traces is not None:
            self._details = SpanDetails(*attaching()) if operator.spans else None
            self._journal = TraceJournal(operator.traces, details=self._details)
        self.failed = False
        """Whether a message has failed for good; then the application ends, and the micro-batch has no effects."""
        self._plain_calls: Callable[[], AbstractContextManager[None]] = nullcontext
        announcement, batch = current_announcement(), batch_number()
        operator.log_levels.apply(batch)
        try:
            program = operator.payload.load()
            has_plain = any(not each.is_async for each in program.functions)
            if runner is not None and (has_plain or program.routes.runs_code):
                self._plain_calls = runner.plain_calls
            self._dispatcher = Dispatcher(
                program,
                announcement.clock(operator.clock),
                batch=batch,
                delivered_up_to=announcement.delivered_up_to,
                concurrency=operator.concurrency,
                immediate=operator.immediate,
                turn=announcement.turn,
                runner=runner,
                watermark=announcement.watermark,
                journal=self._journal,
            )
        except PlatformError as error:
            self._fail(DispatchError(error))

    def dispatch(self, groups: Iterable[Group]) -> Iterator[Group]:
        """Call functions with the rows of ``groups``; yield each finished group, until a failure ends the run.

        The caller should install the timer for timeouts (:func:`statefun.sdk.deadline.standby`): otherwise each
        call installs it again.
        """
        if self.failed:
            return
        try:
            with self._plain_calls():
                for group in self._dispatcher.run(groups, self._effects):
                    if self._effects.size >= self._full_bytes:
                        self._flush()
                    yield group
        except DispatchError as error:
            self._fail(error)

    def finish(self) -> list[bytes]:
        """Return the outcomes of all groups (effects, counts, or a failure), serialized."""
        if not self.failed:
            if self._effects:
                self._flush()
            summary = self._dispatcher.summary()
            if self._journal is not None and self._journal.kinds:
                summary.traces = trace_stream(self._journal)
                summary.traces_left_out = self._journal.left_out
                if self._details is not None:
                    summary.span_details = details_stream(self._details)
                    self._details.close()
            self._outcomes.append(summary)
        self._outcomes[-1].log_lines.extend(take_lines())
        return [outcome.SerializeToString() for outcome in self._outcomes]

    def _fail(self, error: DispatchError) -> None:
        self.failed = True
        self._outcomes = [Outcome(failure=error.failure)]

    def _flush(self) -> None:
        self._outcomes.append(Outcome(segment=self._segments.write(self._effects)))
