# SPDX-License-Identifier: Apache-2.0
"""What the trace journal notes about calls that leave their micro-batches."""

from __future__ import annotations

import pytest

from statefun import Context, Message, OnFailure, StatefulFunctions, StringType
from statefun.engine.address_values import AddressValues
from statefun.engine.calls import waiting_row
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.left_calls import RESULT
from statefun.engine.program import Program
from statefun.engine.trace_journal import FAILURE, INVOCATION, TraceJournal
from statefun.testing.leaving import ChoosingRunner, Report
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.micro_batch import StoppedClock

NOW = 1_000_000
ADA, SENDER = b"Ada\0t/f", b"Ada\0t/sender"
SENT = "traceparent=00-0123456789abcdef0123456789abcdef-00000000000000aa-01"


def functions() -> StatefulFunctions:
    """Return a coroutine function that fails."""
    registry = StatefulFunctions()

    @registry.bind("t/f", on_failure=OnFailure.SKIP)
    async def f(_ctx: Context, _message: Message) -> None:
        raise ValueError

    return registry


def run(
    values: AddressValues, *rows: MessageRow, leaves: bool
) -> tuple[TraceJournal, list[Report]]:
    """Run a micro-batch; return what it has noted, and the results of calls that have left it."""
    runner, journal = ChoosingRunner(lambda: leaves, lambda: 9, lambda: False), TraceJournal()
    dispatcher = Dispatcher(
        Program(functions(), {}),
        BatchClock(StoppedClock(NOW), NOW),
        batch=1,
        delivered_up_to=0,
        concurrency=10,
        immediate=0,
        runner=runner,
        journal=journal,
    )
    for _ in dispatcher.dispatch([Group(ADA, columns_of(rows), 0, len(rows), values)], Effects()):
        pass
    return journal, runner.take()


def noted(journal: TraceJournal, kind: int) -> list[tuple[str, str]]:
    """Return the id and the parent of each entry of a kind."""
    entries = zip(journal.kinds, journal.spans, journal.parents, strict=True)
    return [(span, parent) for each, span, parent in entries if each == kind]


@pytest.mark.parametrize("has_waited", [False, True])
def test_a_failure_in_a_long_call_belongs_to_the_invocation_that_has_failed(
    *, has_waited: bool
) -> None:
    """So ``statefun trace`` shows it at the right function."""
    row = MessageRow(ADA, SENDER, StringType.typename, b"", SENT)
    values = AddressValues(None)
    if has_waited:
        values.wait([waiting_row(Group(ADA, columns_of([row]), 0, 1, values), 0)], 0)
        row = row._replace(trace=None)

    first, [report] = run(values, row, leaves=True)
    second, _ = run(values, MessageRow(ADA, None, RESULT, report.result), leaves=False)

    [(span, parent)] = noted(first, INVOCATION)
    assert parent == "00000000000000aa"
    assert noted(second, FAILURE) == [("0" * 16, span)]
