# SPDX-License-Identifier: Apache-2.0
"""Dispatching through Spark's own evaluation of ``applyInPandasWithState``."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pandas as pd
from pyspark.sql.streaming.state import GroupState

from statefun.protocol.runtime_pb2 import Outcome, Segment
from statefun.runtime.dispatch.dispatcher import AddressValues, Dispatcher, DispatchError, Rows
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.effects import EgressColumns


@attrs.frozen
class PandasOperator:
    """What Spark calls per address; each call puts out one ``Outcome`` (or more, when large)."""

    payload: Payload
    segments: SegmentWriter

    def __call__(
        self, key: tuple[bytes], chunks: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Dispatch all messages of one address."""
        dispatcher = Dispatcher(self.payload.load())
        values = AddressValues(state.get[0] if state.exists else None)
        effects = EgressColumns()
        segments: list[Segment] = []
        invocations = 0
        try:
            for chunk in chunks:
                invocations += len(chunk)
                dispatcher.dispatch(bytes(key[0]), _rows(chunk), values, effects)
                if self.segments.is_full(effects):
                    segments.append(self.segments.write(effects))
        except DispatchError as error:
            yield _frame([Outcome(failure=error.failure)])
            return
        if effects:
            segments.append(self.segments.write(effects))
        if values.changed:
            encoded = values.encoded()
            if encoded is None:
                state.remove()
            else:
                state.update((encoded,))
        outcomes = [Outcome(invocations=invocations)]
        outcomes += [Outcome(segment=segment) for segment in segments]
        yield _frame(outcomes)


def _rows(chunk: pd.DataFrame) -> Rows:
    return Rows(*(chunk[name].tolist() for name in Rows._fields))


def _frame(outcomes: list[Outcome]) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(
        {"outcome": [outcome.SerializeToString() for outcome in outcomes]}
    )
    return frame
