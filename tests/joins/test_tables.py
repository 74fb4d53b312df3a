# SPDX-License-Identifier: Apache-2.0
"""Tables in the test kit, against a dictionary."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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
from statefun.joins import Table
from statefun.testing import InProcessApplication
from statefun.testing.tested import loaded


@dataclass
class Customer:
    """A row."""

    name: str


@dataclass
class Order:
    """A value that is joined with a row."""

    number: int
    customer: str


def publish(ctx: Context, topic: str, value: Any) -> None:
    """Publish a value as JSON."""
    text = json.dumps(value)
    ctx.send(KafkaEgressMessage("com.example/out", topic=topic, key=ctx.address.id, value=text))


def functions_of_customers() -> StatefulFunctions:
    """Return a table of customers, and a function that sends orders to it by the customer in their values."""
    functions = StatefulFunctions()
    customers = Table("com.example/customers", Customer, functions=functions)

    @customers.join
    def ship(ctx: Context, order: Order, customer: Customer | None) -> None:
        publish(ctx, "shipped", [order.number, customer and customer.name])

    @customers.on_change
    def note(ctx: Context, customer: Customer | None) -> None:
        publish(ctx, "changes", customer and customer.name)

    @functions.bind("com.example/orders")
    def forward(ctx: Context, order: Order) -> None:
        ctx.send(customers.address(order.customer), order)

    return functions


def application(
    functions: StatefulFunctions, seed: int = 0, *, tombstones: str = "deliver"
) -> InProcessApplication:
    """Return an application that crashes at times, with a topic of rows and one of orders."""
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic(
            "customers",
            targets=["com.example/customers"],
            value_type="test.tables/Customer",
            valueFormat={"type": "json"},
            tombstones=tombstones,
        )
        .with_topic(
            "orders",
            targets=["com.example/orders"],
            value_type="test.tables/Order",
            valueFormat={"type": "json"},
        )
        .build()
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
        loaded(None, None, functions, [ingress, egress]),
        seed,
        crashes=lambda _: chance.random() < 0.1,
    )


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["row", "delete", "order"])), max_size=12
)


@given(steps=steps, seed=st.integers(0, 1000))
def test_a_table_is_a_dictionary(steps: list[tuple[str, str]], seed: int) -> None:
    """An order finds the latest row of its customer, or None; changes are published once, also after crashes."""
    app = application(functions_of_customers(), seed)
    table: dict[str, str] = {}
    shipped: list[Any] = []
    changes: list[str | None] = []
    for number, (key, step) in enumerate(steps):
        if step == "order":
            app.produce("orders", str(number), json.dumps({"number": number, "customer": key}))
            shipped.append([number, table.get(key)])
        elif step == "row":
            table[key] = f"{key} {number}"
            app.produce("customers", key, json.dumps({"name": table[key]}))
            changes.append(table[key])
        else:
            table.pop(key, None)
            app.produce("customers", key, None)
            changes.append(None)
        app.drain()

    assert [record.json() for record in app.egress("shipped")] == shipped
    assert [record.json() for record in app.egress("changes")] == changes
    assert {each.id for each in app.addresses()} == {*table}
    for key, name in table.items():
        [row] = app.state(Address("com.example/customers", key)).values()
        assert row == Customer(name)


@given(steps=steps, seed=st.integers(0, 1000))
def test_a_topic_has_the_changes_of_a_table(steps: list[tuple[str, str]], seed: int) -> None:
    """Each row is published once as it is stored, and a tombstone for each deletion, in order, also after crashes."""
    functions = StatefulFunctions()
    Table(
        "com.example/customers",
        Customer,
        materialize="customers-now",
        egress="com.example/out",
        functions=functions,
    )
    functions.bind("com.example/orders")(_ignore)
    app = application(functions, seed)
    expected: dict[str, list[bytes | None]] = {}
    for number, (key, step) in enumerate(steps):
        if step != "order":
            value = json.dumps({"name": f"{key} {number}"}) if step == "row" else None
            app.produce("customers", key, value)
            row = None if value is None else f'{{"name":"{key} {number}"}}'.encode()
            expected.setdefault(key, []).append(row)
    app.drain()

    found: dict[str, list[bytes | None]] = {}
    for record in app.egress("customers-now"):
        found.setdefault(record.key or "", []).append(record.value)
    assert found == expected


def _ignore(_ctx: Context, _order: Order) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("row", "value", "written"),
    [
        (str, "Ada", b"Ada"),
        (bytes, b"\1", b"\1"),
        (int, 2**40, b"1099511627776"),
        (float, 1.5, b"1.5"),
        (bool, False, b"false"),
        (int | str, 2**40, b"1099511627776"),
        (int | str, "Ada", b'"Ada"'),
        (list[int], [1], b"[1]"),
    ],
)
def test_rows_are_written_as_the_formats_of_topics_read_them(
    row: Any, value: Any, written: bytes
) -> None:
    """The format depends on the class of the rows, and not on the single row."""
    functions = StatefulFunctions()
    Table("com.example/rows", row, materialize="now", egress="com.example/out", functions=functions)
    egress = KafkaEgress.for_id("com.example/out").with_kafka_address("kafka:9092").build()
    app = InProcessApplication(functions=functions, components=[egress])

    app.send("com.example/rows", "k", value)
    app.drain()

    assert [record.value for record in app.egress("now")] == [written]


@pytest.mark.parametrize(
    "options", [{"materialize": "now"}, {"egress": "a/b"}, {"materialize": "", "egress": "a/b"}]
)
def test_topic_and_egress_of_a_table_belong_together(options: dict[str, str]) -> None:
    """A table with one of them alone is refused."""
    with pytest.raises(DefinitionError, match="give both"):
        Table("com.example/rows", str, functions=StatefulFunctions(), **options)  # type: ignore[arg-type]


def test_where_a_table_is_published_is_checked_at_the_start() -> None:
    """The name of the topic with the table, and the egress with the module, before a row comes."""
    functions = StatefulFunctions()
    with pytest.raises(DefinitionError, match=r"table com\.example/rows: 'no topic' is not a name"):
        Table("com.example/rows", str, materialize="no topic", egress="a/b", functions=functions)
    Table("com.example/rows", str, materialize="now", egress="com.example/oat", functions=functions)
    egress = KafkaEgress.for_id("com.example/out").with_kafka_address("kafka:9092").build()

    with pytest.raises(BindingError) as refused:
        InProcessApplication(functions=functions, components=[egress])

    assert (
        "table com.example/rows publishes its rows to com.example/oat, which is no Kafka egress of the module; did you "
        "mean com.example/out?"
    ) in refused.value.message


def test_tombstones_are_rejected_by_default() -> None:
    """They become dead letters, whose error says what to do."""
    app = application(functions_of_customers(), tombstones="reject")
    app.produce("customers", "a", None)
    app.drain()

    [letter] = app.dead_letters()
    assert "a tombstone), and its topic does not say tombstones: deliver" in letter.message


def test_a_tombstone_has_no_field_with_a_time() -> None:
    """It deletes its row all the same, and does not move the watermark."""
    functions = StatefulFunctions()
    Table("com.example/customers", Customer, functions=functions)
    ingress = (
        KafkaIngress.for_id("com.example/in")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("g")
        .with_topic(
            "customers",
            targets=["com.example/customers"],
            value_type="test.tables/Customer",
            valueFormat={"type": "json"},
            tombstones="deliver",
        )
        .with_event_time(field="at", out_of_order=timedelta(0))
        .build()
    )
    app = InProcessApplication(functions=functions, components=[ingress])
    app.produce("customers", "a", json.dumps({"name": "Ada", "at": "2026-01-01T00:00:00Z"}))
    app.drain()
    before = app.watermark
    app.produce("customers", "a", None)
    app.drain()

    assert before is not None
    assert app.watermark == before
    assert app.addresses() == set()


def test_a_function_must_take_tombstones() -> None:
    """Otherwise the application does not start."""
    functions = functions_of_customers()
    replaced = StatefulFunctions()

    @replaced.bind("com.example/customers")
    def keep(ctx: Context, customer: Customer) -> None:
        """Keep nothing."""

    replaced.add(functions.for_typename("com.example/orders"))

    text = "customers delivers tombstones, but no handler of com.example/customers takes None"
    with pytest.raises(BindingError, match=text):
        application(replaced)


def test_a_join_may_be_a_coroutine_function() -> None:
    """It is awaited as a function is."""
    functions = functions_of_customers()
    payments = Table("com.example/payments", Order, functions=functions)
    seen = []

    @payments.join
    async def pay(ctx: Context, customer: Customer, order: Order | None) -> None:
        seen.append((customer.name, order))

    app = application(functions)
    app.send("com.example/payments", "a", Order(1, "a"))
    app.send("com.example/payments", "a", Customer("Ada"))
    app.drain()

    assert seen == [("Ada", Order(1, "a"))]


def two_parameters(ctx: Context, order: Order) -> None:
    """Take no row."""


def without_annotation(ctx: Context, order, customer) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    """Take anything."""


def of_rows(ctx: Context, order: Customer, customer: Customer | None) -> None:
    """Take what the table takes."""


@pytest.mark.parametrize(
    ("fun", "text"),
    [
        (two_parameters, "must take the arguments context, value, row; its signature is"),
        (without_annotation, "parameter order: annotate the value with its class"),
        (of_rows, "already takes values of type .*Customer"),
    ],
)
def test_an_ill_formed_join_is_refused(fun: Any, text: str) -> None:
    """The error names the function and its file."""
    customers = Table("com.example/customers", Customer, functions=StatefulFunctions())

    with pytest.raises(DefinitionError, match=rf"{fun.__name__} \(.*test_tables.*{text}"):
        customers.join(fun)


async def coroutine(ctx: Context, customer: Customer | None) -> None:
    """Be a coroutine function."""


def test_an_ill_formed_handler_of_changes_is_refused() -> None:
    """The error names the handler."""
    customers = Table("com.example/customers", Customer, functions=StatefulFunctions())

    with pytest.raises(DefinitionError, match=r"coroutine \(.*must not be a coroutine function"):
        customers.on_change(coroutine)  # type: ignore[arg-type] # on purpose


def test_functions_can_be_sent_to_workers() -> None:
    """Spark pickles functions by value if their module is not a file of the program."""
    pickled = cloudpickle.dumps(functions_of_customers())  # type: ignore[no-untyped-call] # as pyspark has it
    sent = cloudpickle.loads(pickled)

    assert [str(function.typename) for function in sent] == [
        "com.example/customers",
        "com.example/orders",
    ]
