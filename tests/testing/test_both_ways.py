# SPDX-License-Identifier: Apache-2.0
"""The same tests in this process and on Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import attrs
import pytest
from pyspark import cloudpickle

from statefun import (
    Address,
    Context,
    FunctionError,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    KafkaRecord,
    LongType,
    Message,
    OnFailure,
    Retry,
    State,
    StatefulFunctions,
    StringType,
    make_json_type,
    state_value,
)
from statefun.joins import Table, joined
from statefun.testing import PublishedRecord, TestedApplication

# Workers cannot import test modules, and every application in this process has the types of this one.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.takes(minutes=0.9)]
both = pytest.mark.parametrize("statefun_app", ["in_process", "spark"], indirect=True)
Make = Callable[..., TestedApplication]


@attrs.frozen
class Order:
    """Something to buy."""

    item: str
    count: int = 1


class Basket(State):
    """What somebody wants to buy."""

    items: list[Order] = state_value(default_factory=list)
    total: int = 0
    seen: str = state_value(default="", expire_after_call=timedelta(hours=1))


ORDER = make_json_type("test.both/Order", Order)
BASKET = "test.both/basket"


def program(*, dead_letters: bool = True) -> StatefulFunctions:
    """Return functions that use what there is."""
    functions = StatefulFunctions()
    last = OnFailure.DEAD_LETTER if dead_letters else OnFailure.SKIP

    @functions.bind(BASKET)
    def basket(ctx: Context, order: Order, state: Basket) -> None:
        state.items.append(order)
        state.total += order.count
        state.seen = order.item
        ctx.send(Address("test.both/stock", order.item), -order.count)
        ctx.send_after(timedelta(hours=2), Address("test.both/remind", ctx.address.id), "buy!", "t")

    @basket.on(str)
    async def command(ctx: Context, text: str, state: Basket) -> None:
        if text == "pay":
            ctx.cancel_delayed_message("t")
            record = KafkaEgressMessage(
                "test.both/out", topic="test-both-out", key=ctx.address.id, value=f"{state.total}"
            )
            ctx.send(record)
            del state.items
        else:
            raise ValueError(text)

    @functions.bind("test.both/remind")
    def remind(ctx: Context, text: str) -> None:
        out = KafkaEgressMessage("test.both/out", topic="test-both-out", value=text)
        ctx.send(out)

    class Stock(State):
        count: int = 100

    @functions.bind("test.both/stock")
    def stock(ctx: Context, change: int, state: Stock) -> None:
        state.count += change

    class Attempts(State):
        attempts: int = 0

    @functions.bind("test.both/flaky", on_failure=Retry(3, timedelta(seconds=10), then=last))
    def flaky(ctx: Context, message: Message, state: Attempts) -> None:
        raise RuntimeError("never")

    return functions


def _read(record: KafkaRecord) -> str | None:
    text = (record.value or b"").decode()
    return None if text == "leave out" else text.upper()


def components(*, dead_letters: bool = True) -> list[KafkaIngress | KafkaEgress]:
    """Return an ingress of orders and one of raw texts, and an egress."""
    orders = (
        KafkaIngress.for_id("test.both/in")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id("test-both")
        .with_topic("test-both-orders", value_type=ORDER, targets=[BASKET])
        .build()
    )
    raw = (
        KafkaIngress.for_id("test.both/raw")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id("test-both")
        .with_topic("test-both-raw", targets=["test.both/remind"])
        .with_deserializer(_read, StringType)
        .build()
    )
    out = KafkaEgress.for_id("test.both/out").with_kafka_address("localhost:1")
    if dead_letters:
        out = out.with_option("deadLetterTopic", "test-both-dead")
    return [orders, raw, out.build()]


@pytest.mark.long(minutes=0.9)
@both
def test_an_afternoon_of_a_shop(statefun_app: Make) -> None:
    """Ingress, handlers by type, state, messages, timers, cancellation, expiry and egress."""
    app = statefun_app(functions=program(), components=components())
    ada, bob = Address(BASKET, "Ada"), Address(BASKET, "Bob")

    app.produce("test-both-orders", "Ada", '{"item": "tea", "count": 2, "more": null}')
    app.send(BASKET, "Bob", Order("tea"))
    app.send(BASKET, "Bob", Order("jam", 3))
    app.drain()
    assert app.state(ada) == {"items": [Order("tea", 2)], "total": 2, "seen": "tea"}
    assert app.state(bob)["items"] == [Order("tea"), Order("jam", 3)]
    assert app.state(Address("test.both/stock", "tea")) == {"count": 97}

    app.advance(hours=1)
    app.send(BASKET, "Ada", "pay")
    app.drain()
    assert app.state(ada) == {"total": 2}
    assert app.egress("test-both-out") == [PublishedRecord(b"2", "Ada")]

    app.produce("test-both-raw", "x", "hello")
    app.produce("test-both-raw", "x", "leave out")
    app.advance(timedelta(hours=2))
    assert [record.text for record in app.egress("test-both-out")] == ["2", "HELLO", "buy!"]
    assert app.state(bob)["total"] == 4


@both
def test_records_are_transformed_on_both_ways(statefun_app: Make) -> None:
    """Ids, values, names of topics and reasons are the same, and so are records that go out."""
    functions = StatefulFunctions()

    @functions.bind("test.both/tell")
    def tell(ctx: Context, message: Message) -> None:
        user = message.value()
        topic = ctx.record.topic if ctx.record else None
        told = {"id": ctx.address.id, "user": user, "topic": topic, "nested": {"a": 1}}
        out = KafkaEgressMessage("test.both/out", topic="test-both-out", value=json.dumps(told))
        ctx.send(out)

    by_id = [
        {"type": "ValueToKey", "fields": "id"},
        {"type": "ExtractField$Key", "field": "id"},
        {"type": "Cast$Value", "spec": "age:int16"},
        {"type": "RegexRouter", "regex": "(.*)-users", "replacement": "$1"},
    ]
    users = (
        KafkaIngress.for_id("test.both/users")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id("test-both")
        .with_topic(
            "test-both-users",
            value_type="test.both/user",
            valueFormat={"type": "json"},
            targets=["test.both/tell"],
            transforms=by_id,
        )
        .build()
    )
    egress_topic = {
        "topic": "test-both-out",
        "valueFormat": {"type": "json"},
        "transforms": [
            {"type": "ValueToKey", "fields": ["id"]},
            {"type": "ExtractField$Key", "field": "id"},
            {"type": "Flatten$Value"},
        ],
    }
    out = (
        KafkaEgress.for_id("test.both/out")
        .with_kafka_address("localhost:1")
        .with_option("deadLetterTopic", "test-both-dead")
        .with_option("topics", [egress_topic])
    )
    app = statefun_app(functions=functions, components=[users, out.build()])

    app.produce("test-both-users", None, '{"id": 7, "age": "36"}')
    app.produce("test-both-users", "k", '{"id": 8, "age": "old"}')
    app.produce("test-both-users", "k", '{"id": null}')
    app.drain()

    [record] = app.egress("test-both-out")
    assert record.key == "7"
    assert json.loads(record.text) == {
        "id": "7",
        "user.id": 7,
        "user.age": 36,
        "topic": "test-both",
        "nested.a": 1,
    }
    letters = {(letter.code, str(letter.target), letter.value) for letter in app.dead_letters()}
    assert letters == {
        ("SF302", "test.both/tell/8", b'{"id": 8, "age": "old"}'),
        ("SF400", "None", b'{"id": null}'),
    }
    [bad] = [letter for letter in app.dead_letters() if letter.code == "SF302"]
    assert bad.message.startswith(
        "the transforms of test-both-users failed on a record: transforms"
    )
    assert {letter.message.rpartition(": ")[2] for letter in app.dead_letters()} == {
        "the value is not a whole number",
        "the key must not be null, since it becomes the id of an address",
    }


@pytest.mark.long(minutes=0.6)
@both
def test_tables_and_joins(statefun_app: Make) -> None:
    """Rows come and go with tombstones, and records of two topics find each other."""
    functions = StatefulFunctions()
    stocks = Table("test.both/table", int, functions=functions)

    def publish(ctx: Context, *values: object) -> None:
        text = json.dumps([ctx.address.id, *values])
        ctx.send(KafkaEgressMessage("test.both/out", topic="test-both-out", value=text))

    @stocks.join
    def find(ctx: Context, text: str, stock: int | None) -> None:
        publish(ctx, text, stock)

    @joined("test.both/pairs", after=timedelta(seconds=5), functions=functions)
    def pair(ctx: Context, text: str, number: int) -> None:
        publish(ctx, text, number)

    both_functions = ["test.both/table", "test.both/pairs"]
    ingress = (
        KafkaIngress.for_id("test.both/joined")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id("test-both")
        .with_topic(
            "test-both-stocks",
            value_type="io.statefun.types/long",
            targets=both_functions[:1],
            tombstones="deliver",
        )
        .with_topic(
            "test-both-numbers", value_type="io.statefun.types/long", targets=both_functions[1:]
        )
        .with_topic("test-both-texts", valueFormat={"type": "text"}, targets=both_functions)
        .with_event_time(max_future=timedelta(days=999_999))
        .build()
    )
    app = statefun_app(functions=functions, components=[ingress, *components()[2:]])
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    four = LongType.serializer().serialize(4)

    for topic, value, seconds in [
        ("stocks", four, 0),
        ("texts", b"a", 1),
        ("stocks", None, 2),
        ("texts", b"b", 3),
        ("numbers", four, 7),
    ]:
        time = noon + timedelta(seconds=seconds)
        app.produce(f"test-both-{topic}", "k", value, timestamp=time)
        app.drain()

    assert [json.loads(record.text) for record in app.egress("test-both-out")] == [
        ["k", "a", 4],
        ["k", "b", None],
        ["k", "b", 4],
    ]


def reading_shared(
    name: str, policy: OnFailure, *transforms: dict[str, str], value_type: str
) -> KafkaIngress:
    """Return an ingress of a topic that another one reads as well."""
    return (
        KafkaIngress.for_id(f"test.both/{name}")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id(f"test-both-{name}")
        .with_failure_policy(policy)
        .with_topic(
            "test-both-shared",
            value_type=value_type,
            valueFormat={"type": "json"},
            targets=["test.both/tell"],
            transforms=transforms,
        )
        .build()
    )


@both
def test_two_ingresses_read_one_topic_each_in_its_own_way(statefun_app: Make) -> None:
    """Transforms, types, names of topics and policies are the ingress's, also in retries."""
    functions = StatefulFunctions()

    @functions.bind("test.both/tell", on_failure=Retry(2, timedelta(seconds=1)))
    def tell(ctx: Context, message: Message) -> None:
        topic = ctx.record.topic if ctx.record else None
        told = json.dumps(
            [ctx.address.id, message.value_typename(), message.raw_value().decode(), topic]
        )
        if b"poison" in message.raw_value():
            raise ValueError(told)
        ctx.send(KafkaEgressMessage("test.both/out", topic="test-both-out", value=told))

    masking = {"type": "MaskField$Value", "fields": "card"}
    renaming = {"type": "RegexRouter", "regex": ".*", "replacement": "renamed"}
    by_id = [{"type": "ValueToKey", "fields": "id"}, {"type": "ExtractField$Key", "field": "id"}]
    masked = reading_shared("masked", OnFailure.SKIP, masking, renaming, value_type="test.both/m")
    keyed = reading_shared("keyed", OnFailure.DEAD_LETTER, *by_id, value_type="test.both/k")
    app = statefun_app(functions=functions, components=[masked, keyed, *components()[2:]])

    app.produce("test-both-shared", "k", '{"id":7,"card":"1"}')
    app.produce("test-both-shared", "k", '{"id":8,"card":"poison"}')
    app.produce("test-both-shared", None, '{"id":9,"card":"9","n":"poison"}')
    app.produce("test-both-shared", "k", "no JSON")
    app.drain()
    app.advance(seconds=2)

    as_keyed = ["7", "test.both/k", '{"id":7,"card":"1"}', "test-both-shared"]
    assert sorted(json.loads(record.text) for record in app.egress("test-both-out")) == [
        as_keyed,
        ["k", "test.both/m", '{"id":7,"card":""}', "renamed"],
        ["k", "test.both/m", '{"id":8,"card":""}', "renamed"],
    ]
    letters = {
        (letter.code, str(letter.target), letter.key, letter.attempts, letter.value)
        for letter in app.dead_letters()
    }
    assert letters == {
        ("SF301", "test.both/tell/8", "k", 2, b'{"id":8,"card":"poison"}'),
        ("SF301", "test.both/tell/9", None, 2, b'{"id":9,"card":"9","n":"poison"}'),
        ("SF400", "None", "k", 1, b"no JSON"),
    }


SCHEMA = json.dumps({"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]})
UNREACHABLE = {
    "type": "schema-registry",
    "url": "http://127.0.0.1:1",
    "schema": SCHEMA,
    "properties": {"max.retries": "0"},
}


def registered(typename: str, *transforms: dict[str, str]) -> KafkaIngress:
    """Return an ingress whose schema registry cannot be reached; it skips bad records."""
    return (
        KafkaIngress.for_id("test.both/registered")
        .with_kafka_address("localhost:1")
        .with_consumer_group_id("test-both")
        .with_failure_policy(OnFailure.SKIP)
        .with_topic(
            "test-both-registered",
            value_type=typename,
            valueFormat=UNREACHABLE,
            targets=["test.both/read"],
            transforms=transforms,
        )
        .build()
    )


def reading() -> StatefulFunctions:
    """Return a function that is never called."""
    functions = StatefulFunctions()

    @functions.bind("test.both/read", on_failure=Retry(2, timedelta(seconds=1)))
    def read(ctx: Context, message: Message) -> None:
        raise AssertionError(message.value())

    return functions


@both
def test_a_registry_that_does_not_answer_makes_no_record_bad(statefun_app: Make) -> None:
    """The function's policy decides, as for any service that it needs, and not the topic's."""
    users = registered("test.both/masked", {"type": "MaskField$Value", "fields": "a"})
    app = statefun_app(functions=reading(), components=[users, *components()[2:]])

    app.produce("test-both-registered", "k", b"\0\0\0\0\1\2")
    app.drain()
    app.advance(seconds=2)

    [letter] = app.dead_letters()
    assert (letter.code, letter.attempts, letter.value) == ("SF301", 2, b"\0\0\0\0\1\2")
    assert "cannot be read now: the schema registry at" in letter.message


@pytest.mark.long(minutes=0.5)
@both
def test_keys_that_a_registry_does_not_tell_end_the_run(statefun_app: Make) -> None:
    """Nobody knows where the record is to go; the next run goes on with it."""
    key = {"type": "ValueToKey", "fields": "a"}
    users = registered("test.both/keyed", key, {"type": "ExtractField$Key", "field": "a"})
    app = statefun_app(functions=reading(), components=[users, *components()[2:]])

    app.produce("test-both-registered", "k", b"\0\0\0\0\1\2")
    for _ in range(2):
        with pytest.raises(FunctionError) as raised:
            app.drain()
        assert raised.value.message.startswith(
            "transforms cannot compute the key of the record at topic test-both-registered"
        )
        assert ": the schema registry at " in raised.value.message


@pytest.mark.long(minutes=0.6)
@both
def test_what_fails_follows_its_policy(statefun_app: Make) -> None:
    """Retries wait, and then there are dead letters: of functions, values and records."""
    app = statefun_app(functions=program(), components=components())

    app.send("test.both/flaky", "Ada", "again")
    app.send(BASKET, "Ada", "nonsense")
    app.produce("test-both-orders", "Ada", "no JSON")
    app.produce("test-both-orders", None, "{}")
    app.produce("test-both-orders", "Ada", None)
    app.advance(seconds=9)
    early = {letter.code for letter in app.dead_letters()}
    app.advance(seconds=21)

    letters = {
        (letter.code, str(letter.target), letter.attempts, letter.value)
        for letter in app.dead_letters()
    }
    assert early == {"SF301", "SF302", "SF400"}
    assert letters == {
        ("SF301", "test.both/flaky/Ada", 3, StringType.serializer().serialize("again")),
        ("SF301", f"{BASKET}/Ada", 1, StringType.serializer().serialize("nonsense")),
        ("SF302", f"{BASKET}/Ada", 1, b"no JSON"),
        ("SF400", "None", 1, b"{}"),
        ("SF400", "None", 1, None),
    }
    raised_at = {letter.code: letter.traceback for letter in app.dead_letters() if letter.traceback}
    assert [*raised_at] == ["SF301"]
    assert "raise " in raised_at["SF301"]
    assert app.state(Address("test.both/flaky", "Ada")) == {}


@both
def test_a_failure_that_stops_the_application_comes_again(statefun_app: Make) -> None:
    """Nothing of its micro-batch is kept, and the next run begins with the same message."""
    app = statefun_app(
        functions=program(dead_letters=False), components=components(dead_letters=False)
    )

    app.send(BASKET, "Ada", "nonsense")
    for _ in range(2):
        with pytest.raises(FunctionError, match="ValueError: nonsense") as raised:
            app.drain()
        assert "raise ValueError" in raised.value.details
