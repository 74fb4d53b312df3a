# SPDX-License-Identifier: Apache-2.0
"""The stateful operator: it turns a task's rows and state into outcomes and new state.

It is evaluated in one of two ways, with the same results: by Spark itself, which calls the
operator once per address with pandas frames, or by ``arrow_path`` on whole Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.streaming.state import GroupState

from statefun.engine.address_values import AddressValues
from statefun.engine.clock import Clock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.failures import DispatchError
from statefun.engine.groups import COLUMNS, Columns, Group
from statefun.engine.running_calls import CallRunner
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.calls.call_reports import calls_of_worker
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.dispatch.announcement import current_announcement
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.dispatch.worker_logs import LogLevels
from statefun.runtime.spark_internals.task import batch_number
from statefun.sdk.errors import PlatformError

OUTCOME = "outcome"
"""The only column of the operator's output."""

if TYPE_CHECKING:
    import pandas as pd


@attrs.frozen
class Operator:
    """The operator, which travels to the workers; Spark evaluates it by calling it."""

    payload: Payload
    segments: SegmentWriter
    concurrency: int
    """How many addresses of coroutine functions run side by side."""
    immediate: int
    """The limit of an address's messages that are delivered in the micro-batch that sends them."""
    clock: Clock
    """The clock of the machine that runs a task; the driver's time comes with the job."""
    arrow: bool
    """Whether workers that can evaluate the operator on Arrow batches do so."""
    log_levels: LogLevels = attrs.field(factory=LogLevels)
    """The levels at which workers log."""
    calls: CallServerAddress | None = None
    """Where workers report about calls that have left their micro-batches; None: none leaves."""

    def start(self, *, lets_leave: bool = False) -> Evaluation:
        """Begin to evaluate the operator for a task.

        Args:
            lets_leave: whether calls may go on when the task has ended: the process stays.
        """
        return Evaluation(self, calls_of_worker(self.calls) if lets_leave and self.calls else None)

    def __call__(
        self, key: tuple[bytes], chunks: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Dispatch all messages of one address; yield ``Outcome`` values."""
        import pandas as pd  # noqa: PLC0415 - workers that do without it start in half the time

        evaluation = self.start()
        values = AddressValues(state.get[0] if state.exists else None)
        for chunk, last in _with_last(chunks):
            columns = Columns(
                *(chunk[name].tolist() for name in COLUMNS), cell=partial(_cell, chunk)
            )
            group = Group(bytes(key[0]), columns, 0, len(chunk), values, last)
            for _ in evaluation.dispatch([group]):
                pass
        outcomes = evaluation.finish()
        if values.changed and not evaluation.failed:
            encoded = values.encoded()
            if encoded is None:
                state.remove()
            else:
                state.update((encoded,))
        yield pd.DataFrame({OUTCOME: outcomes})


def _cell(chunk: pd.DataFrame, name: str, row: int) -> Any:
    import pandas as pd  # noqa: PLC0415 - as above

    value = chunk[name].iloc[row]
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def _with_last(chunks: Iterator[pd.DataFrame]) -> Iterator[tuple[pd.DataFrame, bool]]:
    """Pair each chunk with whether it is the last one; Spark gives each address at least one."""
    chunk = next(chunks)
    for following in chunks:
        yield chunk, False
        chunk = following
    yield chunk, True


class Evaluation:
    """Dispatches batches of groups and gathers their outcomes."""

    def __init__(self, operator: Operator, runner: CallRunner | None) -> None:
        self._segments = operator.segments
        self._effects = Effects()
        self._outcomes: list[Outcome] = []
        self.failed = False
        """Whether a message has failed for good: then no effect of the micro-batch is used."""
        announcement, batch = current_announcement(), batch_number()
        operator.log_levels.apply(batch)
        try:
            self._dispatcher = Dispatcher(
                operator.payload.load(),
                announcement.clock(operator.clock),
                batch=batch,
                delivered_up_to=announcement.delivered_up_to,
                concurrency=operator.concurrency,
                immediate=operator.immediate,
                turn=announcement.turn,
                runner=runner,
                run=operator.calls.run if operator.calls else "",
            )
        except PlatformError as error:
            self._fail(DispatchError(error))

    def dispatch(self, groups: Iterable[Group]) -> Iterator[Group]:
        """Dispatch ``groups``; yield each finished group, and no group after a failure."""
        if self.failed:
            return
        try:
            for group in self._dispatcher.dispatch(groups, self._effects):
                if self._segments.is_full(self._effects):
                    self._flush()
                yield group
        except DispatchError as error:
            self._fail(error)

    def finish(self) -> list[bytes]:
        """Return all outcomes, serialized."""
        if not self.failed:
            if self._effects:
                self._flush()
            self._outcomes.append(self._dispatcher.summary())
        return [outcome.SerializeToString() for outcome in self._outcomes]

    def _fail(self, error: DispatchError) -> None:
        self.failed = True
        self._outcomes = [Outcome(failure=error.failure)]

    def _flush(self) -> None:
        self._outcomes.append(Outcome(segment=self._segments.write(self._effects)))
