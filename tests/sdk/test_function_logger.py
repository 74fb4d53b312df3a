# SPDX-License-Identifier: Apache-2.0
"""``ctx.logger``: levels, fields, and the place that logs."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path

import pytest

from statefun import Address, Context, Message, StatefulFunctions
from statefun.sdk.function_logger import LOGGED_CALL, LoggedCall
from statefun.sdk.invocation import invoke
from statefun.sdk.invocation_batch import Invocation, InvocationBatch
from statefun.sdk.types import TypedValue

ADA = Address("test.fns/payment", "Ada")
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def charge(ctx: Context, _message: Message) -> None:
    """Log with all methods."""
    ctx.logger.debug("details", level=1)
    ctx.logger.info("charged %s of %s", 3, ctx.address.id, msg="a", level=2)
    try:
        raise ValueError("no money")
    except ValueError:
        ctx.logger.exception("failed")
    if ctx.logger.is_enabled_for(logging.WARNING):
        ctx.logger.warning("slow")
        ctx.logger.error("wrong")


def invoked(trace: str | None = None) -> None:
    """Call the function with one message."""
    functions = StatefulFunctions()
    functions.register("test.fns/payment", charge)
    batch = InvocationBatch(ADA, {}, [Invocation(None, TypedValue("a/b", b""), trace)])
    assert not invoke(functions.for_typename("test.fns/payment"), batch).failures


def call_of(record: logging.LogRecord) -> LoggedCall:
    """Return what a record knows of its call."""
    call = getattr(record, LOGGED_CALL)
    assert isinstance(call, LoggedCall)
    return call


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (logging.DEBUG, ["details", "charged 3 of Ada", "failed", "slow", "wrong"]),
        (logging.INFO, ["charged 3 of Ada", "failed", "slow", "wrong"]),
        (logging.ERROR, ["failed"]),
    ],
)
def test_lines_go_to_the_logger_of_the_typename(
    caplog: pytest.LogCaptureFixture, level: int, shown: list[str]
) -> None:
    """Its level decides which lines are shown."""
    with caplog.at_level(level, "test.fns/payment"):
        invoked()

    assert [record.getMessage() for record in caplog.records] == shown
    assert {record.name for record in caplog.records} == {"test.fns/payment"}
    assert all(call_of(record).address == ADA for record in caplog.records)


def test_a_line_has_its_fields_and_the_place_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Fields may have the names of the logger's own arguments; exceptions come with their traceback."""
    with caplog.at_level(logging.INFO, "test.fns/payment"):
        invoked()
    charged, failed, *_ = caplog.records

    assert call_of(charged).fields == {"msg": "a", "level": 2}
    assert Path(charged.pathname) == Path(__file__)
    lines, first = inspect.getsourcelines(charge)
    assert "charged" in lines[charged.lineno - first]
    assert failed.exc_info is not None
    assert isinstance(failed.exc_info[1], ValueError)


@pytest.mark.parametrize(
    ("trace", "trace_id"),
    [
        (None, None),
        (f"baggage=a=b\ntraceparent=00-{TRACE_ID}-00f067aa0ba902b7-01", TRACE_ID),
        ("traceparent=nothing", None),
        ('traceparent=00-evil"x-1-01', None),
        ("tracestate=a", None),
    ],
)
def test_a_line_names_the_trace_of_its_message(
    caplog: pytest.LogCaptureFixture, trace: str | None, trace_id: str | None
) -> None:
    """The trace id is the second part of the header ``traceparent``."""
    with caplog.at_level(logging.ERROR, "test.fns/payment"):
        invoked(trace)

    assert {call_of(record).trace_id for record in caplog.records} == {trace_id}
