# SPDX-License-Identifier: Apache-2.0
"""Times of invocations, and the trace that is present while a function handles a message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import attrs

from statefun import Context, Message, StatefulFunctions, StringType
from statefun.engine.address_values import AddressValues
from statefun.engine.calls import Call, call_for
from statefun.engine.groups import Columns, Group
from statefun.engine.span_details import SpanDetails
from statefun.engine.trace_journal import NOBODY, TraceJournal
from statefun.runtime.rows.trace_entries import details_of, details_stream
from statefun.sdk.address import Address, TypeName
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import InvocationBatch, InvocationResult
from statefun.sdk.stateful_function import StatefulFunction

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER = "00000000000000000000000000000001"
PARENT = "00f067aa0ba902b7"
HEADER = f"traceparent=00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"traceparent=00-{OTHER}-{PARENT}-00"
_present: ContextVar[str] = ContextVar("present", default="")


def attach(trace: str) -> object:
    """Make a trace the present one."""
    return _present.set(trace)


def call(function: Callable[..., Any] | None, *traces: str | None, transport: Any = None) -> Call:
    """Return a call of a function with a message of another function for each trace."""
    columns = Columns(
        [b"Bob\0t/g"] * len(traces),
        [StringType.typename] * len(traces),
        [b""] * len(traces),
        traces,
        [0] * len(traces),
        cell=lambda name, row: None,
    )
    group = Group(b"Ada\0t/f", columns, 0, len(traces), AddressValues(None))
    if function is None:
        called = StatefulFunction(TypeName("t", "f"), (), {}, transport=transport)
    else:
        functions = StatefulFunctions()
        functions.register("t/f", function)
        called = functions.for_typename("t/f")
    return call_for(group, Address("t/f", "Ada"), called, range(len(traces)), may_be_retried=False)


@attrs.define
class Watched:
    """A call that a journal with details has begun."""

    call: Call
    details: SpanDetails = attrs.field(factory=lambda: SpanDetails(attach, _present.reset))
    journal: TraceJournal = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.journal = TraceJournal(details=self.details)
        self.journal.begin(self.call)

    @property
    def traces(self) -> list[str | None]:
        """The traces of the messages of the call."""
        return [each.trace for each in self.call.batch.invocations]


def test_times_of_plain_functions_follow_each_other() -> None:
    """Each message has its own, within those of the call; one that is not sampled has none."""
    seen = []

    def handle(ctx: Context, message: Message) -> None:
        seen.append(_present.get())
        time.sleep(0.001)

    watched = Watched(call(handle, HEADER, NOT_SAMPLED, HEADER))
    before = time.time_ns()
    invoke(watched.call.function, watched.call.batch)

    details = watched.details
    assert details.traces == [TRACE, TRACE]
    flat = [*zip(details.starts, details.ends, strict=True)]
    assert before <= flat[0][0] < flat[0][1] <= flat[1][0] < flat[1][1] <= time.time_ns()
    assert seen == watched.traces
    assert seen[1] == NOT_SAMPLED
    assert not _present.get()


def test_a_message_without_a_trace_has_none_while_it_is_handled() -> None:
    """Not that of the message before it."""
    seen = []

    def handle(ctx: Context, message: Message) -> None:
        seen.append(_present.get())

    watched = Watched(call(handle, HEADER, None, HEADER))
    invoke(watched.call.function, watched.call.batch)

    assert seen[1] == ""
    assert len(watched.details.traces) == 2


def test_coroutines_run_in_the_trace_of_their_message() -> None:
    """Also the tasks that they make, while calls of other addresses go on."""
    seen: list[list[str]] = [[], []]
    turns = [asyncio.Event() for _ in range(2)]

    def handler(number: int) -> Callable[..., Any]:
        async def look() -> None:
            seen[number].append(_present.get())

        async def handle(ctx: Context, message: Message) -> None:
            seen[number].append(_present.get())
            turns[1 - number].set()
            await turns[number].wait()
            seen[number].append(_present.get())
            await asyncio.create_task(look())

        return handle

    both = [Watched(call(handler(number), HEADER, HEADER)) for number in range(2)]

    async def run() -> None:
        await asyncio.gather(*(invoke_async(each.call.function, each.call.batch) for each in both))

    asyncio.run(run())

    for number, each in enumerate(both):
        assert seen[number] == [trace for trace in each.traces for _ in range(3)]
        assert all(
            start < end for start, end in zip(each.details.starts, each.details.ends, strict=True)
        )


def test_a_function_that_raises_has_an_end() -> None:
    """The next message has its own trace."""
    seen = []

    def handle(ctx: Context, message: Message) -> None:
        seen.append(_present.get())
        raise ValueError

    watched = Watched(call(handle, HEADER, HEADER))
    result = invoke(watched.call.function, watched.call.batch)

    assert len(result.failures) == 2
    assert seen == watched.traces
    assert all(watched.details.ends)


def test_messages_to_an_endpoint_are_handled_at_once() -> None:
    """In the trace of the first one that has one; the others keep their own ids, for links."""
    seen = []

    class Elsewhere:
        async def invoke(self, batch: InvocationBatch, prepare: object) -> InvocationResult:
            seen.append(_present.get())
            return InvocationResult({}, [], [], [], [])

    other = HEADER.replace(TRACE, OTHER)
    watched = Watched(call(None, None, HEADER, other, transport=Elsewhere()))
    asyncio.run(invoke_async(watched.call.function, watched.call.batch))

    assert seen == watched.traces[1:2]
    assert watched.details.traces == [TRACE, OTHER]
    assert [bool(each) for each in watched.details.ends] == [True, False]
    assert NOBODY not in watched.journal.parents


def test_a_call_that_goes_on_notes_nothing_after_its_task() -> None:
    """And keeps nothing of the task."""

    def handle(ctx: Context, message: Message) -> None:
        content.append(details_stream(watched.details))
        watched.details.close()

    content: list[bytes] = []
    watched = Watched(call(handle, HEADER, HEADER))
    invoke(watched.call.function, watched.call.batch)

    first, second = details_of(content[0])
    assert (first.trace.hex(), bool(first.start), first.end) == (TRACE, True, 0)
    assert (second.start, second.end) == (0, 0)
    assert not watched.details.starts


def test_entries_that_are_left_out_have_no_details() -> None:
    """A task has a limit of both; the call itself goes on, in the trace of its message."""
    seen = []

    def handle(ctx: Context, message: Message) -> None:
        seen.append(_present.get())

    details = SpanDetails(attach, _present.reset)
    begun = call(handle, HEADER, HEADER)
    TraceJournal(most=1, details=details).begin(begun)
    invoke(begun.function, begun.batch)

    assert len(details.ends) == 1
    assert seen == [each.trace for each in begun.batch.invocations]
