# SPDX-License-Identifier: Apache-2.0
"""Ids of invocations in trace headers, as other systems have written them."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from statefun import FunctionError, KafkaEgressMessage, StatefulFunctions, StringType
from statefun.engine.address_values import AddressValues
from statefun.engine.calls import Call, call_for
from statefun.engine.groups import Columns, Group
from statefun.engine.trace_journal import FAILURE, INVOCATION, NOBODY, RECORD, TraceJournal
from statefun.runtime.rows.trace_entries import entries_of, trace_stream, trace_table
from statefun.sdk.address import Address, TypeName
from statefun.sdk.invocation_batch import FailedInvocation
from statefun.sdk.stateful_function import StatefulFunction

KEY = b"Ada\0t/f"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def call(*traces: str | None, transport: Any = None) -> Call:
    """Return a call with a message for each trace; all of them are records of topic ``in``."""
    count = len(traces)

    def cell(name: str, row: int) -> Any:
        return {"topic": "in", "partition": 2, "offset": row}[name]

    columns = Columns(
        [None] * count, [StringType.typename] * count, [b""] * count, traces, [0] * count, cell=cell
    )
    group = Group(KEY, columns, 0, count, AddressValues(None))
    if transport is None:
        functions = StatefulFunctions()
        functions.register("t/f", lambda ctx, message: None)
        function = functions.for_typename("t/f")
    else:
        function = StatefulFunction(TypeName("t", "f"), (), {}, transport=transport)
    return call_for(group, Address("t/f", "Ada"), function, range(count), may_be_retried=False)


def traces_of(call: Call) -> list[str | None]:
    """Return the traces that the messages of a call have now."""
    return [each.trace for each in call.batch.invocations]


def test_what_a_trace_has_besides_stays() -> None:
    """Its id, its flags, and other headers before and after."""
    journal = TraceJournal()
    header = f"tracestate=a=b\ntraceparent=00-{TRACE}-{PARENT}-01\nbaggage=c=d"
    begun = call(header)

    journal.begin(begun)

    (span,) = journal.spans
    assert traces_of(begun) == [header.replace(PARENT, span)]
    assert journal.parents == [PARENT]
    assert (journal.keys, journal.texts) == ([KEY], ["in/2/0"])


@pytest.mark.parametrize(
    "header",
    [
        None,
        "baggage=a=b",
        "traceparent=of another form",
        "traceparent=00-1-2-01",
        f"traceparent=00-{TRACE}-{PARENT[:-1]}Z-01",
        f"traceparent=00-{TRACE.upper()}-{PARENT}-01",
        f"traceparent=00-{TRACE}-{PARENT}-01 ",
        f"traceparent=00-{TRACE}-{PARENT}-01-more",
        f"traceparent=00-{TRACE}-{PARENT}-01\r",
        f"traceparent=00-{'0' * 32}-{PARENT}-01",
        f"traceparent=00-{TRACE}-{'0' * 16}-01",
        f"traceparent=ff-{TRACE}-{PARENT}-01",
    ],
)
def test_a_message_without_a_trace_begins_one(header: str | None) -> None:
    """It has ids that no other one has, and is sampled."""
    journal = TraceJournal()
    begun = call(header, header)

    journal.begin(begun)

    own, other = ((each or "").splitlines()[0].split("-") for each in traces_of(begun))
    assert own[0] == "traceparent=00"
    assert [len(part) for part in own[1:3]] == [32, 16]
    assert own[3] == "01"
    assert own[1] != other[1]
    assert own[2] != other[2]
    assert journal.parents == [NOBODY] * 2
    others = [header] if header == "baggage=a=b" else []
    assert all((each or "").splitlines()[1:] == others for each in traces_of(begun))


@pytest.mark.parametrize(
    "header",
    [
        f"traceparent=01-{TRACE}-{PARENT}-01",
        f"traceparent=cc-{TRACE}-{PARENT}-03-what-the-future-brings",
        f"traceparent=no\ntraceparent=00-{TRACE}-{PARENT}-01",
        f"traceparent=00-{TRACE}-{PARENT}-01\ntraceparent=00-{TRACE}-{PARENT}-01",
    ],
)
def test_a_trace_is_continued_with_one_header_of_the_present_version(header: str) -> None:
    """Headers of a later version have the same parts in front, and a record may have several headers."""
    journal = TraceJournal()
    begun = call(f"{header}\nbaggage=a=b\x0ctraceparent=\u2028")

    journal.begin(begun)

    (span,) = journal.spans
    assert traces_of(begun) == [
        f"traceparent=00-{TRACE}-{span}-01\nbaggage=a=b\x0ctraceparent=\u2028"
    ]
    assert journal.parents == [PARENT]


def test_a_trace_that_is_not_sampled_is_not_noted() -> None:
    """Whoever has begun it does not want it."""
    journal = TraceJournal()
    begun = call(f"traceparent=00-{TRACE}-{PARENT}-00")

    journal.begin(begun)

    assert traces_of(begun) == [f"traceparent=00-{TRACE}-{PARENT}-00"]
    assert not journal.kinds


def test_only_records_begin_a_trace() -> None:
    """So a message of a record that is not noted is not noted, either."""
    begun = call(None, None)
    sender = Address("t/f", "Bob")
    begun.batch.invocations[0] = begun.batch.invocations[0]._replace(caller=sender)  # type: ignore[index]
    journal = TraceJournal()
    journal.begin(begun)
    assert journal.texts == ["in/2/1"]
    assert traces_of(begun)[0] is None

    none = TraceJournal(share=0.0)
    none.begin(call(None, f"traceparent=00-{TRACE}-{PARENT}-01"))
    assert none.parents == [PARENT]


def test_a_record_begins_a_trace_each_time_or_never() -> None:
    """A function that seeds the random numbers of its process, or a retry, changes nothing."""
    places = [None] * 1000
    journal = TraceJournal(share=0.1)
    random.seed(1)
    journal.begin(call(*places))
    again = TraceJournal(share=0.1)
    again.begin(call(*places))

    assert 50 < len(journal.texts) < 200
    assert again.texts == journal.texts


def test_messages_to_an_endpoint_have_one_id() -> None:
    """A reply does not say which of them has caused what; so a message that is not sampled has it, too."""
    journal = TraceJournal()
    not_sampled = f"traceparent=00-{TRACE}-{PARENT}-00"
    begun = call(
        not_sampled, f"traceparent=00-{TRACE}-{PARENT}-01", None, transport=cast("Any", object())
    )

    journal.begin(begun)

    (span,) = set(journal.spans)
    assert traces_of(begun) == [f"traceparent=00-{TRACE}-{span}-01"] * 3
    assert journal.parents == [PARENT, NOBODY]
    assert journal.texts == ["in/2/1", "in/2/2"]

    none = TraceJournal()
    begun = call(not_sampled, not_sampled, transport=cast("Any", object()))
    none.begin(begun)
    assert traces_of(begun) == [not_sampled] * 2


def test_records_and_failures_belong_to_the_invocation_that_their_headers_name() -> None:
    """Headers of functions may have any form, and texts of exceptions any character."""
    journal, begun = TraceJournal(), call(None, f"traceparent=00-{TRACE}-{PARENT}-00")
    journal.begin(begun)
    (span,) = journal.spans
    headers = [
        f"00-{TRACE}-{span}-01",
        f"00-{TRACE}-{PARENT}-00",
        f"00-{TRACE}-{PARENT[:-1]}\udce9-01".encode(errors="surrogateescape"),
        b"short",
        None,
    ]
    records = [
        KafkaEgressMessage("t/out", topic="out", value=b"", headers=[("traceparent", each)])
        for each in headers
    ]
    error = FunctionError("not so good: \udce9" + "x" * 1000)
    failures = [FailedInvocation(index, error, "ValueError", "") for index in (0, 1)]

    journal.end(begun, records, failures)

    assert journal.kinds == [INVOCATION, RECORD, FAILURE]
    assert journal.parents == [NOBODY, span, span]
    assert len(journal.texts[2]) < 400
    entries = [*entries_of(trace_table([trace_stream(journal)]))]
    assert [each.text for each in entries] == journal.texts
    assert [each.parent.hex() for each in entries] == journal.parents


def test_a_task_notes_no_more_than_the_driver_can_take() -> None:
    """What is left out is counted."""
    journal = TraceJournal(most=2)

    journal.begin(call(None, None, None))

    assert (len(journal.kinds), journal.left_out) == (2, 1)

    large = TraceJournal(most_bytes=2 * len(KEY + b"in/2/0"))
    large.begin(call(None, None, None))
    assert (len(large.kinds), large.left_out) == (2, 1)
