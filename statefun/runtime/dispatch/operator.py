# SPDX-License-Identifier: Apache-2.0
"""The stateful operator of Spark's query: it calls functions with the rows and state of addresses.

Its results are outcomes (effects, counts and failures) and new state. The operator is evaluated in one of
two ways, with the same results: by Spark itself, which calls the operator once per address with pandas
frames, or by ``arrow_path`` on whole Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.streaming.state import GroupState

from statefun.engine.address_values import AddressValues
from statefun.engine.clock import Clock
from statefun.engine.groups import COLUMNS, Columns, Group
from statefun.runtime.calls.call_server import CallServerAddress
from statefun.runtime.calls.worker_calls import calls_of_worker
from statefun.runtime.dispatch.evaluation import Evaluation
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.dispatch.worker_logs import LogLevels
from statefun.sdk.deadline import standby

OUTCOME = "outcome"
"""The name of the only column that an :class:`Operator` returns to Spark."""

if TYPE_CHECKING:
    import pandas as pd


@attrs.frozen
class Operator:
    """The part of Spark's query that calls functions; Spark sends this object to workers, and calls it there."""

    payload: Payload
    segments: SegmentWriter
    concurrency: int
    """The largest number of addresses of coroutine functions that are called at the same time."""
    immediate: int
    """The largest number of an address's messages that are delivered in the micro-batch that sends them."""
    clock: Clock
    """The clock with which a worker measures how much time has passed since a micro-batch began."""
    arrow: bool
    """Whether workers get messages as Arrow batches; otherwise as pandas frames, which takes longer."""
    log_levels: LogLevels = attrs.field(factory=LogLevels)
    """The levels at which workers log."""
    traces: float | None = None
    """The share of the ingress records without a trace for which tasks note new traces; None: they note no traces."""
    spans: bool = False
    """Whether tasks also note the further details that spans need."""
    calls: CallServerAddress | None = None
    """The address to which workers report long calls; None if each micro-batch waits for all its calls."""

    def start(self, *, lets_leave: bool = False) -> Evaluation:
        """Return an object that calls functions in one task.

        Args:
            lets_leave: whether long calls may go on after the task has ended; the worker process must then
                keep running.
        """
        return Evaluation(self, calls_of_worker(self.calls) if lets_leave and self.calls else None)

    def __call__(
        self, key: tuple[bytes], frames: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Call the function at one address with all of its messages; yield the outcomes, serialized.

        Args:
            key: the key of the address, as the only item.
            frames: the messages of the address, as rows.
            state: the stored state of the address, which is replaced by the new state.
        """
        import pandas as pd  # noqa: PLC0415 - workers that do without it start in half the time

        evaluation = self.start()
        values = AddressValues(state.get[0] if state.exists else None)
        for frame, last in _with_last(frames):
            columns = Columns(
                *(frame[name].tolist() for name in COLUMNS),
                cell=partial(_cell, frame),
                column=partial(_column, frame),
            )
            group = Group(bytes(key[0]), columns, 0, len(frame), values, last)
            with standby():
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


def _cell(frame: pd.DataFrame, name: str, row: int) -> Any:
    import pandas as pd  # noqa: PLC0415 - as above

    value = frame[name].iloc[row]
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def _column(frame: pd.DataFrame, name: str) -> list[Any]:
    """Return a column with None for nulls; pandas has converted a column of integers with nulls to floats."""
    return [
        None if each != each else int(each) if isinstance(each, float) else each  # noqa: PLR0124 - NaN differs from itself
        for each in frame[name].tolist()
    ]


def _with_last(frames: Iterator[pd.DataFrame]) -> Iterator[tuple[pd.DataFrame, bool]]:
    """Yield each frame, and whether it is the last one; Spark gives each address at least one frame."""
    frame = next(frames)
    for following in frames:
        yield frame, False
        frame = following
    yield frame, True
