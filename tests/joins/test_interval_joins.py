# SPDX-License-Identifier: Apache-2.0
"""Joins of two streams in the test kit, against all pairs in plain Python."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from statefun import (
    Address,
    BindingError,
    Context,
    DefinitionError,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    StatefulFunctions,
)
from statefun.joins import joined, joined_as_of
from statefun.testing import InProcessApplication
from statefun.testing.tested import loaded

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
TYPENAME = "com.example/paid"


@dataclass
class Order:
    """A record of the first stream."""

    number: int


@dataclass
class Payment:
    """A record of the second stream."""

    number: int


def functions_of(
    before: int, after: int, grace: int, late: str = "dead-letter"
) -> StatefulFunctions:
    """Return a function that publishes pairs, and records without a partner."""
    functions = StatefulFunctions()

    def publish(ctx: Context, topic: str, value: Any) -> None:
        ctx.send(KafkaEgressMessage("com.example/out", topic=topic, value=json.dumps(value)))

    @joined(
        TYPENAME,
        before=before * SECOND,
        after=after * SECOND,
        grace=grace * SECOND,
        late=late,
        functions=functions,
    )
    def pair(ctx: Context, order: Order, payment: Payment) -> None:
        publish(ctx, "pairs", [ctx.address.id, order.number, payment.number])

    @pair.on_unmatched
    def alone(ctx: Context, value: Order | Payment) -> None:
        publish(ctx, "alone", value.number)

    return functions


def functions_as_of(within: int, grace: int) -> StatefulFunctions:
    """Return a function that publishes orders with the newest payment before them, and those without one."""
    functions = StatefulFunctions()

    def publish(ctx: Context, topic: str, value: Any) -> None:
        ctx.send(KafkaEgressMessage("com.example/out", topic=topic, value=json.dumps(value)))

    @joined_as_of(
        TYPENAME,
        within=within * SECOND,
        grace=grace * SECOND,
        late="dead-letter",
        functions=functions,
    )
    def pair(ctx: Context, order: Order, payment: Payment) -> None:
        publish(ctx, "pairs", [ctx.address.id, order.number, payment.number])

    @pair.on_unmatched
    def alone(ctx: Context, order: Order) -> None:
        publish(ctx, "alone", order.number)

    return functions


def application(
    functions: StatefulFunctions, seed: int = 0, *, event_time: bool = True, crashes: float = 0.0
) -> InProcessApplication:
    """Return an application with a topic for each stream."""
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
    )
    for topic in ("Order", "Payment"):
        ingress.with_topic(
            topic,
            targets=[TYPENAME],
            value_type=f"test.interval-joins/{topic}",
            valueFormat={"type": "json"},
        )
    if event_time:
        ingress.with_event_time(
            out_of_order=10 * SECOND,
            max_future=timedelta(days=9),
            idle=5 * SECOND,
            when_all_idle="follow",
        )
    egress = (
        KafkaEgress.for_id("com.example/out")
        .with_kafka_address("kafka:9092")
        .with_exactly_once_producer_semantics(timedelta(minutes=1))
        .with_option("deadLetterTopic", "dead")
        .build()
    )
    chance = random.Random(seed)
    return InProcessApplication.of(
        loaded(None, None, functions, [ingress.build(), egress]),
        seed,
        crashes=lambda _: chance.random() < crashes,
    )


@attrs.frozen
class Step:
    """A record, and whether it is handled before the next one comes."""

    topic: str
    key: str
    seconds: int
    behind: int
    drains: bool


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["Order", "Payment"]),
        st.sampled_from("ab"),
        st.integers(0, 8),
        st.sampled_from([0, 0, 3, 10, 40]),
        st.booleans(),
    ),
    max_size=14,
)


def run(app: InProcessApplication, steps: list[Step], grace: int) -> tuple[list[int], set[int]]:
    """Handle records, and let all of them go; return their times, and the numbers of the late ones."""
    times, now = [], 0
    for number, step in enumerate(steps):
        now += step.seconds
        times.append(now - step.behind)
        time = START + times[-1] * SECOND
        app.produce(step.topic, step.key, json.dumps({"number": number}), timestamp=time)
        if step.drains:
            app.drain()
    app.drain()
    app.advance(minutes=10)
    app.drain()

    late = {json.loads(letter.value or b"")["number"] for letter in app.dead_letters()}
    for number in late:  # only records behind the others by more than allowed
        assert times[number] + 10 + grace < max(times)
    assert app.addresses() == set()
    return times, late


@given(
    steps=steps,
    before=st.sampled_from([0, 3]),
    after=st.sampled_from([0, 5, 20]),
    grace=st.sampled_from([0, 15]),
    seed=st.integers(0, 1000),
)
def test_the_pairs_are_those_of_the_model(
    steps: list[Step], before: int, after: int, grace: int, seed: int
) -> None:
    """Each pair of records that are not late comes once, others are alone, and no state is left; also after crashes."""
    app = application(functions_of(before, after, grace), seed, crashes=0.15)
    times, late = run(app, steps, grace)
    rest = [each for each in enumerate(steps) if each[0] not in late]
    pairs = [
        [step.key, left, right]
        for left, step in rest
        for right, other in rest
        if (step.topic, other.topic, step.key) == ("Order", "Payment", other.key)
        and times[left] - before <= times[right] <= times[left] + after
    ]
    matched = {number for pair in pairs for number in pair[1:]}
    assert sorted(record.json() for record in app.egress("pairs")) == sorted(pairs)
    assert sorted(record.json() for record in app.egress("alone")) == [
        number for number, _ in rest if number not in matched
    ]


@given(
    steps=steps,
    within=st.sampled_from([0, 5, 20]),
    grace=st.sampled_from([0, 15]),
    seed=st.integers(0, 1000),
)
def test_partners_as_of_a_time_are_those_of_the_model(
    steps: list[Step], within: int, grace: int, seed: int
) -> None:
    """Each order has the newest payment until its time, in whatever order both come; also after crashes."""
    app = application(functions_as_of(within, grace), seed, crashes=0.15)
    times, late = run(app, steps, grace)

    pairs, alone = [], []
    for number, step in enumerate(steps):
        if step.topic == "Payment" or number in late:
            continue
        partners = {
            other
            for other, each in enumerate(steps)
            if (each.topic, each.key) == ("Payment", step.key)
            and other not in late
            and times[number] - within <= times[other] <= times[number]
        }
        newest = max((times[each] for each in partners), default=None)
        if newest is None:
            alone.append(number)
        else:
            pairs.append((number, {each for each in partners if times[each] == newest}))
    found = {left: right for _, left, right in (each.json() for each in app.egress("pairs"))}
    assert len(app.egress("pairs")) == len(found)
    assert [number for number, _ in pairs] == sorted(found)
    assert all(found[number] in partners for number, partners in pairs)
    assert sorted(record.json() for record in app.egress("alone")) == alone


def test_a_record_waits_until_no_partner_can_come() -> None:
    """Its state is there until then, and the watermark is at its time, the interval and the grace."""
    app = application(functions_of(0, 5, 0))
    app.produce("Order", "a", '{"number": 1}', timestamp=START)
    app.drain()
    assert [name for name in app.state(Address(TYPENAME, "a")) if name != "buffered"] == ["left@0"]

    app.produce("Order", "b", '{"number": 2}', timestamp=START + 15 * SECOND)
    app.drain()
    assert app.egress("alone") == []
    app.produce("Order", "b", '{"number": 3}', timestamp=START + 16 * SECOND)
    app.drain()
    assert [record.json() for record in app.egress("alone")] == [1]


def test_late_records_are_skipped_and_counted() -> None:
    """The error names the times."""
    app = application(functions_of(0, 5, 0, late="skip"))
    app.produce("Order", "a", '{"number": 1}', timestamp=START + 60 * SECOND)
    app.drain()
    app.produce("Payment", "a", '{"number": 2}', timestamp=START + 49 * SECOND)
    app.drain()

    [skipped] = app.skipped
    assert (
        "a message of 2026-01-01T00:00:49+00:00 is late, as the watermark is 2026-01-01T00:00:50"
        in (skipped)
    )


def test_late_records_need_a_dead_letter_topic() -> None:
    """Otherwise the application does not start."""
    ingress = KafkaIngress.for_id("com.example/in").with_kafka_address("kafka:9092")
    ingress.with_consumer_group_id("g").with_event_time()
    for class_ in ("Order", "Payment"):
        ingress.with_topic(
            class_,
            targets=[TYPENAME],
            value_type=f"test.interval-joins/{class_}",
            valueFormat={"type": "json"},
        )

    with pytest.raises(
        BindingError, match=f"function {TYPENAME}, late messages: .*no egress has a deadLetterTopic"
    ):
        InProcessApplication(functions=functions_of(0, 5, 0), components=[ingress.build()])


def test_joins_need_event_time() -> None:
    """Otherwise the application does not start; a message without event time fails."""
    text = "paid has windows or joins streams, but no ingress declares eventTime"
    with pytest.raises(BindingError, match=text):
        application(functions_of(0, 5, 0), event_time=False)

    app = application(functions_of(0, 5, 0))
    app.send(TYPENAME, "a", Order(1))
    app.drain()
    [letter] = app.dead_letters()
    assert "paid/a: the message has no event time, so it has no partners" in letter.message


def of_one_class(ctx: Context, left: Order, right: Order | Payment) -> None:
    """Take values that may be on both sides."""


def two_parameters(ctx: Context, left: Order) -> None:
    """Take no partner."""


async def coroutine(ctx: Context, left: Order, right: Payment) -> None:
    """Be a coroutine function."""


def pair(ctx: Context, left: Order, right: Payment) -> None:
    """Take pairs."""


@pytest.mark.parametrize(
    ("fun", "options", "text"),
    [
        (of_one_class, {}, "takes values of two different classes"),
        (two_parameters, {}, "must take the arguments context, left value, right value"),
        (coroutine, {}, "must not be a coroutine function"),
        (pair, {"after": -SECOND}, "after of a join must be a timedelta that is not negative"),
        (pair, {"before": 5}, "before of a join must be a timedelta that is not negative"),
        (pair, {"grace": timedelta(microseconds=1)}, "grace of a join must be whole milliseconds"),
        (pair, {"after": "soon"}, "after of a join must be a timedelta that is not negative"),
        (
            pair,
            {"late": "sometimes"},
            "late messages must be skip, dead-letter or fail, not 'sometimes'",
        ),
        (pair, {"late": None}, "late messages must be skip, dead-letter or fail, not None"),
    ],
)
def test_an_ill_formed_join_is_refused(fun: Any, options: dict[str, Any], text: str) -> None:
    """The error names the function and its file."""
    with pytest.raises(DefinitionError, match=rf"{fun.__name__} \(.*test_interval_joins.*{text}"):
        joined(TYPENAME, **{"after": SECOND, "functions": StatefulFunctions(), **options})(fun)


def alone(ctx: Context, value: Order) -> None:
    """Handle orders."""


def also_alone(ctx: Context, value: Order | Payment) -> None:
    """Handle orders as well."""


def of_texts(ctx: Context, value: str) -> None:
    """Handle what no stream has."""


def test_an_ill_formed_handler_is_refused() -> None:
    """Each stream has one handler for records without a partner."""
    adds = joined(TYPENAME, after=SECOND, functions=StatefulFunctions())(pair).on_unmatched

    for _ in range(2):  # a cell of a notebook may run again
        adds(alone)
    with pytest.raises(DefinitionError, match=r"also_alone \(.*another handler of on_unmatched"):
        adds(also_alone)
    as_of = joined_as_of(TYPENAME, within=SECOND, functions=StatefulFunctions())(pair)
    with pytest.raises(
        DefinitionError, match=r"also_alone \(.*no stream of the join has values of"
    ):
        as_of.on_unmatched(also_alone)
    with pytest.raises(DefinitionError, match=r"of_texts \(.*no stream of the join has values of"):
        adds(of_texts)


def test_functions_can_be_sent_to_workers() -> None:
    """Spark pickles functions by value if their module is not a file of the program."""
    pickled = cloudpickle.dumps(functions_of(0, 5, 0))  # type: ignore[no-untyped-call] # as pyspark has it
    sent = cloudpickle.loads(pickled)

    assert [str(function.typename) for function in sent] == [TYPENAME]
