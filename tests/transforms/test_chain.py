# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.engine.record_routes import RecordRoutes, route_number
from statefun.module.loader import parse_module
from statefun.module.transforming import transformed_id
from statefun.module.value_types import register_types
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.transforms.chain import Chain
from statefun.transforms.data import NOTHING, TransformError
from statefun.transforms.transform import Record

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


def place() -> Record:
    """Return where a record is."""
    return Record("users", 0, 1, 2, NOTHING, NOTHING)


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
def test_a_record_does_no_harm_but_to_itself(value: bytes) -> None:
    """Whatever is in it, it is a bad record, and nothing else escapes."""
    with pytest.raises(TransformError):
        transformed_id(chain("{type: Cast$Value, spec: 'id:float64'}", BY_ID), place(), None, value)


def test_a_long_text_is_no_number_at_once() -> None:
    """A regular expression that tries all lengths would take hours."""
    value = b'{"id":"' + b"1" * 1_000_000 + b'x"}'
    with pytest.raises(TransformError, match="is no number"):
        transformed_id(chain("{type: Cast$Value, spec: 'id:float64'}", BY_ID), place(), None, value)


def test_the_order_of_fields_makes_no_other_id() -> None:
    """Objects with the same fields are one address."""
    of = chain("{type: ValueToKey, fields: 'id'}")
    ids = {
        transformed_id(of, place(), None, value)
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


def test_a_cast_tells_what_json_has_not() -> None:
    """Once, with the field."""
    with pytest.raises(TransformError) as raised:
        chain('{type: Cast$Value, spec: "n:float32"}').value_of(place(), b'{"n": "1e50"}')
    assert str(raised.value) == (
        "transforms[0], Cast: field 'n': a text cannot be cast to float32: JSON has no number inf"
    )
