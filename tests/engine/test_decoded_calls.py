# SPDX-License-Identifier: Apache-2.0
"""Deserializers of ingresses, without Spark and Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from statefun import (
    Address,
    Context,
    FunctionError,
    KafkaEgress,
    KafkaIngress,
    KafkaRecord,
    Message,
    StatefulFunctions,
    StringType,
    ValueDecodeError,
)
from statefun.engine.address_values import AddressValues
from statefun.engine.calls import Call, call_for
from statefun.engine.deserializing import deserialized
from statefun.engine.groups import Columns, Group
from statefun.engine.record_routes import RecordRoutes
from statefun.engine.row_flags import ENCODED, REPLAYED
from statefun.module.kinds.value_formats import TEXT
from statefun.module.location import Location
from statefun.module.topic_routes import Deserializer, TopicRoute
from statefun.sdk.address import TypeName
from statefun.testing import InProcessApplication

CELLS = {"topic": "t", "partition": 0, "timestamp": 0, "headers": None, "key": None, "route": 7}


def call_of(flags: Sequence[int], content: bytes | None = b"") -> Call:
    """Return a call with a message for each number of flags; the offset is the position."""
    columns = Columns(
        [None] * len(flags),
        [StringType.typename] * len(flags),
        [content] * len(flags),
        [None] * len(flags),
        list(flags),
        cell=lambda name, row: row if name == "offset" else CELLS[name],
    )
    group = Group(b"x\0t/f", columns, 0, len(flags), AddressValues(None))
    functions = StatefulFunctions()
    functions.register("t/f", lambda ctx, message: None)
    function = functions.for_typename("t/f")
    rows = range(len(flags))
    return call_for(group, Address("t", "f", "x"), function, rows, may_be_retried=False)


def routes_of(read: Callable[[KafkaRecord], Any]) -> RecordRoutes:
    """Return the route of all records, with a deserializer."""
    route = TopicRoute("t", TypeName.parse(StringType.typename), (), Location("module.yaml", 1, 1))
    return RecordRoutes({7: route.read_by(Deserializer("t/in", read, StringType))})


@pytest.mark.parametrize(
    ("error", "cause", "code", "text"),
    [
        (SystemExit(), "SystemExit", "SF302", "the deserializer t/in failed on a record for t/f/x"),
        (ValueDecodeError("odd"), "ValueDecodeError", "SF302", "odd"),
        (
            FunctionError("the registry does not answer"),
            "FunctionError",
            "SF301",
            "a record for t/f/x cannot be read now: the registry does not answer",
        ),
    ],
)
def test_an_exception_of_a_deserializer_fails_its_record_alone(
    error: BaseException, cause: str, code: str, text: str
) -> None:
    """Exits are failures, too, and the other records are decoded."""

    def read(record: KafkaRecord) -> str:
        if record.offset == 1:
            raise error
        return "Ada"

    result = deserialized(call_of([ENCODED] * 3), routes_of(read))

    assert result.call is not None
    assert list(result.call.rows) == [0, 2]
    [failed] = result.failed
    assert (failed.cause, failed.error.code) == (cause, code)
    assert failed.error.message.startswith(text)


def test_records_without_values_are_dropped_and_other_messages_stay() -> None:
    """A call without any message is not made."""
    only_records = deserialized(call_of([ENCODED] * 2), routes_of(lambda _: None))
    mixed = deserialized(call_of([ENCODED, 0]), routes_of(lambda _: None))

    assert (only_records.call, only_records.failed) == (None, [])
    assert mixed.call is not None
    assert (list(mixed.call.rows), mixed.failed) == ([1], [])


def test_a_call_without_records_is_made_as_it_is() -> None:
    """Rows of one batch may be records for some addresses, and messages for others."""
    call = call_of([0, 0])

    assert deserialized(call, RecordRoutes({})).call is call


def test_a_record_whose_deserializer_was_removed_fails() -> None:
    """The error names the topic of the record."""
    [failed] = deserialized(call_of([ENCODED]), RecordRoutes({})).failed

    assert failed.error.message == (
        "module.yaml no longer declares a deserializer for records of topic t; declare it again"
    )


def test_functions_see_the_new_names_of_topics() -> None:
    """A transform renames the topic of records; a message between functions has no record."""
    functions, topics = StatefulFunctions(), list[str | None]()

    @functions.bind("t/f")
    def f(ctx: Context, message: Message) -> None:
        topics.append(ctx.record.topic if ctx.record else None)
        if ctx.record:
            ctx.send(Address("t/f", "other"), message.as_string())

    builder = KafkaIngress.for_id("t/in").with_kafka_address("localhost:1")
    builder.with_consumer_group_id("g")
    ingress = builder.with_topic(
        "orders-v1",
        targets=["t/f"],
        valueFormat={"type": "text"},
        transforms=[{"type": "RegexRouter", "regex": "(.*)-v1", "replacement": "$1"}],
    ).with_topic("plain", targets=["t/f"], valueFormat={"type": "text"})
    egress = KafkaEgress.for_id("t/out").with_kafka_address("localhost:1").build()
    app = InProcessApplication(functions=functions, components=[ingress.build(), egress])

    app.produce("orders-v1", "Ada", "a")
    app.produce("plain", "Ada", "b")
    app.drain()

    assert sorted(map(str, topics)) == ["None", "None", "orders", "plain"]


def test_text_is_decoded_from_its_bytes_alone() -> None:
    """Nothing else of a record is read, unless it is a replayed dead letter, which may have come by another route."""
    route = TopicRoute("t", TypeName.parse(StringType.typename), (), Location("module.yaml", 1, 1))
    routes = RecordRoutes({7: route.read_by(TEXT)})
    call = call_of([ENCODED] * 2, b"Zo\xc3\xab")
    asked = set()

    def cell(name: str, row: int) -> Any:
        asked.add(name)
        return row if name == "offset" else CELLS[name]

    call.group.columns.cell = cell

    result = deserialized(call, routes)
    [broken] = deserialized(call_of([ENCODED], b"\xff"), routes).failed
    replayed = deserialized(call_of([ENCODED | REPLAYED], b"Ada"), routes)

    assert result.call is not None
    values = [each.argument.value for each in result.call.batch.invocations]
    assert [StringType.serializer().deserialize(value) for value in values] == ["Zo\xeb"] * 2
    assert asked == {"route"}
    assert (broken.cause, broken.error.code) == ("UnicodeDecodeError", "SF302")
    assert replayed.call is not None
