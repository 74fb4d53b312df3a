# SPDX-License-Identifier: Apache-2.0
"""What a task notes of the messages that it handles."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation.arrow_batches import Row, arrow_batches
from simulation.spark import as_task

from statefun import StatefulFunctions, StringType
from statefun.engine.clock import SystemClock
from statefun.engine.program import Program
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.dispatch.evaluation import Evaluation
from statefun.runtime.dispatch.operator import Operator
from statefun.runtime.dispatch.payload import Payload
from statefun.runtime.dispatch.segments import SegmentWriter
from statefun.runtime.rows.trace_entries import entries_of, trace_table

TRACE = "traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PROPERTIES = {
    "streaming.sql.batchId": "3",
    "statefun.time": f"{SystemClock().now()}",
    "statefun.delivered-up-to": "2",
    "statefun.turn": "nothing",
    "statefun.watermark": "nothing",
}


@pytest.mark.parametrize(("share", "noted"), [(None, 0), (0.0, 1), (1.0, 2)])
def test_a_share_of_0_notes_the_records_that_come_with_a_trace(
    tmp_path: Path, share: float | None, noted: int
) -> None:
    """Without a journal, nothing is noted."""
    functions = StatefulFunctions()
    functions.register("t/f", lambda ctx, message: None)
    operator = Operator(
        Payload.of(Program(functions, {})),
        SegmentWriter(Folder.at(tmp_path)),
        concurrency=10,
        immediate=10,
        clock=SystemClock(),
        arrow=True,
        traces=share,
    )
    rows = [
        Row(b"Ada\0t/f", 0, None, StringType.typename, b"", TRACE, None),
        Row(b"Ada\0t/f", 1, None, StringType.typename, b"", None, None),
    ]

    with as_task(0, 1, PROPERTIES):
        evaluation = Evaluation(operator, None)
        for groups in arrow_batches(rows, {}, 10):
            for _ in evaluation.dispatch(groups):
                pass
        (outcome,) = map(Outcome.FromString, evaluation.finish())

    assert outcome.invocations == 2
    entries = [*entries_of(trace_table([outcome.traces]))] if outcome.traces else []
    assert len(entries) == noted
