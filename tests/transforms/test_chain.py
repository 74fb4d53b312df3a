# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.engine.record_routes import RecordRoutes, route_number
from statefun.module.loader import parse_module
from statefun.module.transforming import transformed_id
from statefun.module.value_types import register_types
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.errors import RecordError
from statefun.sdk.record import EncodedRecord
from statefun.transforms.casting import cast
from statefun.transforms.chain import Chain, Transformed
from statefun.transforms.data import Data, Schema, SchemaKind, TransformError
from statefun.transforms.transform import Part

INGRESS = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: a/{id}
  address: kafka:9092
  startupPosition: {{type: earliest}}
  topics:
    - {{targets: [a/b], valueType: a/{type}, valueFormat: {{type: json}}, {topic}}}
---
"""
BY_ID = "{type: ValueToKey, fields: id}, {type: ExtractField$Key, field: id}"


def chain(*transforms: str) -> Chain:
    """Return the chain of a topic."""
    topic = f"topic: users, transforms: [{', '.join(transforms)}]"
    [route] = parse_module(INGRESS.format(id="in", type="User", topic=topic)).ingresses[0].topics
    assert route.chain is not None
    return route.chain


def record(value: bytes, key: bytes | None = None) -> EncodedRecord:
    """Return a record."""
    return EncodedRecord("users", 0, 1, 2, key, value)


@pytest.mark.parametrize(
    "value",
    [
        b'{"id":' + b"1" * 400 + b"}",
        b'{"id":' + b"9" * 5000 + b"}",
        b'{"id":' + b'{"a":' * 20000 + b"1" + b"}" * 20000 + b"}",
        b'{"id":"\\ud800"}',
        b'{"id":"NaN"}',
        b"\xff",
        b"",
    ],
)
def test_a_malformed_record_is_a_record_error(value: bytes) -> None:
    """No content of a record raises anything but a RecordError."""
    with pytest.raises(RecordError):
        transformed_id(chain("{type: Cast$Value, spec: 'id:float64'}", BY_ID), record(value))


def test_a_long_text_is_refused_as_a_number_in_linear_time() -> None:
    """A regular expression that tries all lengths would take hours."""
    value = b'{"id":"' + b"1" * 1_000_000 + b'x"}'
    with pytest.raises(RecordError, match="is not a number"):
        transformed_id(chain("{type: Cast$Value, spec: 'id:float64'}", BY_ID), record(value))


def test_the_order_of_fields_does_not_change_the_id() -> None:
    """Objects with the same fields are one address."""
    of = chain("{type: ValueToKey, fields: 'id'}")
    ids = {
        transformed_id(of, record(value))
        for value in (b'{"id":{"a":1,"b":2}}', b'{"id":{"b":2,"a":1}}')
    }
    assert ids == {b'{"id":{"a":1,"b":2}}'}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("topic: users, transforms: [{type: Flatten$Value}]", "topic: users"),
        ("topicPattern: u.*, keyFormat: {type: json}", "topic: users"),
    ],
)
def test_a_topic_has_other_transforms_where_another_ingress_reads_it(
    first: str, second: str
) -> None:
    """A record has the number of its route."""
    text = INGRESS.format(id="one", type="Same", topic=first)
    text += INGRESS.format(id="two", type="Same", topic=second)
    module = parse_module(text)
    one, two = (each.topics[0] for each in module.ingresses)

    assert list(register_types(module)) == []
    routes = RecordRoutes.of(module)
    numbers = [route_number(each.id, each.topics[0]) for each in module.ingresses]
    origins = [RecordOrigin(topic="users", route=number) for number in numbers]
    assert [routes.route_of(origin) for origin in origins] == [one, two]


EVERY = [
    "{type: ReplaceField$Value, exclude: secret}",
    "{type: RegexRouter, regex: 'u(.*)', replacement: $1}",
    "{type: InsertField$Value, topic.field: topic, offset.field: offset}",
    "{type: ValueToKey, fields: 'id,topic'}",
    "{type: InsertField$Value, timestamp.field: late}",
    "{type: InsertField$Key, topic.field: again}",
    "{type: HoistField$Value, field: all}",
]
WHOLE = record(b'{"id":7,"secret":1}', b"k")


def test_parts_that_are_made_together_are_as_those_made_alone() -> None:
    """Keys are made before the shuffle, and values and topics where functions run."""
    of = chain(*EVERY)

    made = of.for_function(WHOLE, frozenset(Part))

    assert made == Transformed(
        b'{"again":"sers","id":7,"topic":"sers"}',
        b'{"all":{"id":7,"topic":"sers","offset":1,"late":2}}',
        "sers",
    )
    assert of.for_function(WHOLE, frozenset({Part.KEY})) == made._replace(value=WHOLE.value)
    assert of.for_function(WHOLE, frozenset({Part.VALUE})) == made._replace(key=b"k")
    assert of.for_function(WHOLE, frozenset({Part.TOPIC})) == (b"k", WHOLE.value, "sers")


def test_a_record_of_an_egress_is_transformed_once() -> None:
    """The transformed key is written in the encoding of keys."""
    assert chain(*EVERY).for_topic(WHOLE) == (
        b'{"id":7,"topic":"sers","again":"sers"}',
        b'{"all":{"id":7,"topic":"sers","offset":1,"late":2}}',
        "sers",
    )


@pytest.mark.parametrize(
    ("transforms", "parts", "is_value_read"),
    [
        (["{type: MaskField$Value, fields: a}", "{type: HoistField$Key, field: a}"], "key", False),
        (["{type: MaskField$Value, fields: a}", "{type: ValueToKey, fields: a}"], "key", True),
        (["{type: MaskField$Value, fields: a}"], "value", True),
        (["{type: HoistField$Key, field: a}"], "key", False),
        (["{type: RegexRouter, regex: a, replacement: b}"], "topic", False),
    ],
)
def test_a_part_is_made_by_the_transforms_that_decide_it(
    transforms: list[str], parts: str, *, is_value_read: bool
) -> None:
    """Transforms that do not decide the part cannot fail it."""
    part = Part[parts.upper()]
    spoilt = record(b"no JSON", b"k")

    if is_value_read:
        with pytest.raises(TransformError, match="the value of the record cannot be decoded"):
            chain(*transforms).for_function(spoilt, frozenset({part}))
    else:
        assert chain(*transforms).for_function(spoilt, frozenset({part})).value == b"no JSON"


@pytest.mark.parametrize(
    ("transform", "changes", "reads_time", "reads_offset", "takes_null"),
    [
        ("{type: HoistField$Value, field: a}", [Part.VALUE], False, False, True),
        ("{type: HoistField$Key, field: a}", [Part.KEY], False, False, False),
        ("{type: InsertField$Value, timestamp.field: a}", [Part.VALUE], True, False, False),
        ("{type: InsertField$Value, offset.field: a}", [Part.VALUE], False, True, False),
        ("{type: InsertField$Value, topic.field: a}", [Part.VALUE], False, False, False),
        ("{type: ValueToKey, fields: a}", [Part.KEY], False, False, False),
        ("{type: RegexRouter, regex: a, replacement: b}", [Part.TOPIC], False, False, False),
        (
            "{type: TimestampRouter, topic.format: '$${topic}', timestamp.format: yyyy}",
            [Part.TOPIC],
            True,
            False,
            False,
        ),
    ],
)
def test_a_chain_has_the_traits_of_its_transforms(
    transform: str, changes: list[Part], *, reads_time: bool, reads_offset: bool, takes_null: bool
) -> None:
    """The properties of a chain come from the traits of its transforms."""
    of = chain(transform)

    assert of.changes == set(changes)
    assert (of.reads_time, of.reads_offset) == (reads_time, reads_offset)
    assert of.makes_values_of_nothing == takes_null


def test_a_cast_to_a_float_that_json_does_not_have_is_refused() -> None:
    """The error has the field, once."""
    with pytest.raises(TransformError) as raised:
        chain('{type: Cast$Value, spec: "n:float32"}').for_function(
            record(b'{"n": "1e50"}'), frozenset({Part.VALUE})
        )
    assert str(raised.value) == (
        "transforms[0], Cast: field 'n': a text cannot be cast to float32: JSON cannot represent inf"
    )


@pytest.mark.parametrize(
    "kind", [SchemaKind.INT8, SchemaKind.FLOAT32, SchemaKind.FLOAT64, SchemaKind.BOOLEAN]
)
def test_bytes_are_not_cast_to_numbers(kind: SchemaKind) -> None:
    """Bytes that happen to be digits are not parsed as a text."""
    with pytest.raises(TransformError) as raised:
        cast(Data(Schema(SchemaKind.BYTES), b"1"), kind)
    assert str(raised.value) == f"a value of type bytes cannot be cast to {kind.value}"
