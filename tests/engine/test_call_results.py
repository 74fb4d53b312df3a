# SPDX-License-Identifier: Apache-2.0
"""Invocation results as bytes."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from statefun import FunctionError, KafkaEgressMessage, Message, ValueDecodeError
from statefun.engine.call_results import decoded_result, encoded_result
from statefun.protocol.runtime_pb2 import CallResult
from statefun.sdk.egress import EgressMessage
from statefun.sdk.invocation_batch import FailedInvocation, InvocationResult, Postponed, Trouble
from statefun.sdk.sent import Cancellation, DelayedMessage
from statefun.sdk.types import TypedValue
from statefun.sdk.value_spec import Expiration

NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
PRINTABLE = TEXTS.filter(str.isprintable)
DURATIONS = st.timedeltas(timedelta(0), timedelta(days=400))
VALUES = st.builds(TypedValue, st.just("t/v"), st.binary(max_size=9))
COUNTS = st.integers(0, 2**31 - 1)
EVENT_TIMES = st.none() | st.integers(0, 2**53)
"""Milliseconds since the epoch."""


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """Draw a message to a function."""
    message = Message("t/f", draw(TEXTS.filter(bool)), draw(VALUES))
    message.trace = draw(st.none() | TEXTS)
    message.event_time = draw(EVENT_TIMES)
    return message


RECORDS = st.builds(
    lambda topic, key, value, headers: KafkaEgressMessage(
        "t/out", topic=topic, key=key, value=value, headers=headers
    ),
    NAMES,
    st.none() | TEXTS,
    st.none() | st.binary(max_size=9),
    st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=2),
)
FAILURES = st.builds(
    FailedInvocation,
    COUNTS,
    PRINTABLE.map(FunctionError) | PRINTABLE.map(ValueDecodeError),
    PRINTABLE,
    PRINTABLE,
)
MILLIS = st.integers(0, 10**9).map(lambda count: timedelta(milliseconds=count))
RESULTS = st.builds(
    InvocationResult,
    st.dictionaries(NAMES, st.none() | VALUES),
    st.lists(messages(), max_size=2),
    st.lists(
        st.builds(DelayedMessage, DURATIONS, messages(), TEXTS, EVENT_TIMES)
        | st.builds(Cancellation, TEXTS),
        max_size=2,
    ),
    st.lists(RECORDS, max_size=2),
    st.lists(FAILURES, max_size=2),
    st.lists(st.builds(Expiration, NAMES, DURATIONS, st.booleans()), max_size=2),
    st.none() | st.builds(Postponed, COUNTS, DURATIONS, st.booleans(), TEXTS, TEXTS),
    st.builds(Trouble, COUNTS, COUNTS, COUNTS, MILLIS, COUNTS),
)


def facts(result: InvocationResult) -> object:
    """Return all that a result says, in a form that compares."""
    return (
        result.state_mutations,
        [message_facts(each) for each in result.messages],
        [
            (each.delay, message_facts(each.message), each.cancellation_token, each.due)
            if isinstance(each, DelayedMessage)
            else each
            for each in result.delayed
        ],
        [record_facts(each) for each in result.egress_messages],
        [
            (each.index, type(each.error), each.error.message, each.cause, each.traceback)
            for each in result.failures
        ],
        list(result.expiring),
        result.postponed,
        result.trouble,
    )


def message_facts(message: Message) -> object:
    """Return what a message says."""
    target = message.target_typename, message.target_id
    return target, message.typed_value, message.trace, message.event_time


def record_facts(record: EgressMessage) -> object:
    """Return what a record says."""
    return record.typename, record.typed_value


@given(RESULTS)
def test_a_result_is_the_same_after_its_way(result: InvocationResult) -> None:
    """Encoding and decoding keep everything."""
    content = encoded_result("name", result, 1000)

    decoded = decoded_result(CallResult.FromString(content), 1000)

    assert facts(decoded) == facts(result)


def test_a_result_may_have_any_duration_and_text() -> None:
    """Durations that are too long for a field become the longest ones; a text may be no Unicode."""
    message, longest = Message("t/f", "Ada", TypedValue("t/v", b"")), timedelta.max
    postponed = Postponed(1, longest, problem="answered \udce9")
    result = InvocationResult(
        {},
        [],
        [DelayedMessage(longest, message, "")],
        [],
        [],
        [Expiration("v", longest, on_call=False)],
        postponed,
    )

    decoded = decoded_result(CallResult.FromString(encoded_result("name", result, 1000)), 1000)

    [delayed], [expiring] = decoded.delayed, decoded.expiring
    assert isinstance(delayed, DelayedMessage)
    assert decoded.postponed is not None
    assert decoded.postponed.problem == "answered \\udce9"
    for duration in (delayed.delay, expiring.after, decoded.postponed.wait):
        assert duration > timedelta(days=292_000 * 365)


def test_a_delay_counts_from_the_end_of_the_call() -> None:
    """A delayed message does not wait longer because its result comes later."""
    message = Message("t/f", "Ada", TypedValue("t/v", b""))
    delayed = [DelayedMessage(timedelta(seconds=5), message, "")]
    result = InvocationResult({}, [], delayed, [], [])

    content = CallResult.FromString(encoded_result("name", result, 1000))

    [after_two] = decoded_result(content, 3000).delayed
    [after_ten] = decoded_result(content, 11_000).delayed
    assert isinstance(after_two, DelayedMessage)
    assert isinstance(after_ten, DelayedMessage)
    assert (after_two.delay, after_ten.delay) == (timedelta(seconds=3), timedelta(0))
