# SPDX-License-Identifier: Apache-2.0
"""Applications whose topics have transforms, on a real broker."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from harness import KafkaHarness, run

from statefun import Context, KafkaEgressMessage, Message, StatefulFunctions
from statefun.formats.avro import encode
from statefun.module.loader import parse_module
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter
from statefun.sdk.types import default_types

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def module(kafka: KafkaHarness, topics: str, egress: str = "", **arguments: str) -> str:
    """Write a module file with these topics."""
    text = kafka.module({}, **arguments)
    return text.replace("  topics:\n", f"  topics:\n{topics}") + egress


def echo(out: str) -> StatefulFunctions:
    """Return a function that sends its id, its value and the topic of its record to an egress."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/echo")
    def report(ctx: Context, message: Message) -> None:
        type_ = default_types.find(message.value_typename())
        assert type_ is not None
        value = message.as_type(type_)
        topic = ctx.record.topic.rpartition(".")[2] if ctx.record else None
        line = json.dumps([ctx.address.id, value, topic], default=str)
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=line))

    return functions


def reports(kafka: KafkaHarness, out: str) -> list[Any]:
    """Return the reports of the functions, sorted."""
    return sorted((json.loads(record.value) for record in kafka.receive(out)), key=str)


def test_transforms_decide_addresses_and_values(kafka: KafkaHarness, checkpoint: Path) -> None:
    """A key from the value is the id; functions see the renamed topic."""
    users, out = kafka.topic("users-v1"), kafka.topic("out")
    text = module(
        kafka,
        f"""\
    - topic: '{users}'
      valueType: test/user
      valueFormat: {{type: json}}
      transforms:
        - {{type: org.apache.kafka.connect.transforms.ValueToKey, fields: id}}
        - {{type: ExtractField$Key, field: id}}
        - {{type: RegexRouter, regex: '(.*)-v[0-9]+', replacement: $1}}
        - {{type: InsertField$Value, topic.field: topic, offset.field: offset}}
        - {{type: 'MaskField$Value', fields: card}}
        - {{type: ReplaceField$Value, exclude: id, renames: 'name:user'}}
      targets: [test.fns/echo]
""",
    )
    kafka.send(
        users,
        [
            (None, '{"id":7,"name":"Ada","card":"1234"}'),
            ("old key", '{"id":"Grace","name":"Grace","card":5}'),
            ("7", '{"id":7,"name":"again"}'),
        ],
    )
    summary = run(text, echo(out), checkpoint)
    assert summary.invocations == 3
    topic = users.removesuffix("-v1")
    assert reports(kafka, out) == [
        ["7", {"user": "Ada", "card": "", "topic": topic, "offset": 0}, "users"],
        ["7", {"user": "again", "card": None, "topic": topic, "offset": 2}, "users"],
        ["Grace", {"user": "Grace", "card": 0, "topic": topic, "offset": 1}, "users"],
    ]


def test_the_example_of_the_documentation_runs(kafka: KafkaHarness, checkpoint: Path) -> None:
    """Lines become objects with a field for their source."""
    lines, out = kafka.topic("lines"), kafka.topic("out")
    text = module(
        kafka,
        f"""\
    - topic: '{lines}'
      valueType: test/line
      valueFormat: {{type: text}}
      transforms:
        - {{type: HoistField$Value, field: line}}
        - {{type: InsertField$Value, static.field: data_source, static.value: test-file-source}}
      targets: [test.fns/echo]
""",
    )
    kafka.send(lines, [("a", "foo"), ("b", "hello world")])
    run(text, echo(out), checkpoint)
    assert reports(kafka, out) == [
        ["a", {"line": "foo", "data_source": "test-file-source"}, "lines"],
        ["b", {"line": "hello world", "data_source": "test-file-source"}, "lines"],
    ]


def test_a_record_that_fails_in_a_transform_is_a_rejection(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The dead letter has the original record, the transform and the reason."""
    orders, out, dead = kafka.topic("orders"), kafka.topic("out"), kafka.topic("dead")
    text = module(
        kafka,
        f"""\
    - topic: '{orders}'
      valueType: test/order
      valueFormat: {{type: json}}
      transforms:
        - {{type: Cast$Value, spec: 'count:int8'}}
        - {{type: ValueToKey, fields: count}}
        - {{type: 'ExtractField$Key', field: count}}
      targets: [test.fns/echo]
""",
        dead_letters=dead,
    )
    bad = ['{"count":"many"}', "[1]", "no JSON", '{"count":null}', '{"other":1}']
    kafka.send(orders, [(None if value == "[1]" else "k", value) for value in bad])
    kafka.send(orders, [(None, '{"count":"7"}')])
    summary = run(text, echo(out), checkpoint)
    assert reports(kafka, out) == [["7", {"count": 7}, "orders"]]
    assert summary.dead_letters == len(bad)
    letters = kafka.receive(dead)
    assert [letter.value for letter in letters] == bad
    assert [letter.key for letter in letters] == ["k", None, "k", "k", "k"]
    reasons = [letter.headers["statefun-error-message"] for letter in letters]
    assert [reason.partition("cannot take it: ")[2] for reason in reasons] == [
        "transforms[0], Cast: field 'count': a text cannot be cast to int8: the value is not a whole number",
        "transforms[0], Cast: Cast needs an object with fields, not a list",
        "the value of the record cannot be decoded: DecodeError: JSON is malformed: invalid character (byte 4)",
        "the key must not be null, since it becomes the id of an address",
        "the key must not be null, since it becomes the id of an address",
    ]


def test_a_value_that_fails_in_a_transform_is_a_rejection(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """The policy of the topic decides, as for other values that cannot be read."""
    orders, out = kafka.topic("orders"), kafka.topic("out")
    text = module(
        kafka,
        f"""\
    - topic: '{orders}'
      valueType: test/order
      valueFormat: {{type: json}}
      failurePolicy: skip
      transforms: [{{type: Cast$Value, spec: 'count:int32'}}]
      targets: [test.fns/echo]
""",
    )
    kafka.send(orders, [("a", '{"count":"x"}'), ("b", '{"count":"1"}')])
    summary = run(text, echo(out), checkpoint)
    assert (summary.invocations, summary.skipped) == (1, 1)
    assert reports(kafka, out) == [["b", {"count": 1}, "orders"]]


def test_a_dead_letter_goes_through_the_transforms_again(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """A replay to the function or to the topic transforms the original record."""
    users, out, dead = kafka.topic("users"), kafka.topic("out"), kafka.topic("dead")
    again = kafka.topic("dead-again")
    text = module(
        kafka,
        f"""\
    - topic: '{users}'
      valueType: test/counted
      valueFormat: {{type: json}}
      transforms:
        - {{type: ValueToKey, fields: id}}
        - {{type: ExtractField$Key, field: id}}
        - {{type: HoistField$Value, field: user}}
        - {{type: InsertField$Value, offset.field: offset}}
      targets: [test.fns/echo]
""",
        dead_letters=dead,
    ).replace(f"deadLetterTopic: {dead}\n", f"deadLetterTopic: {dead}\n  replayTopic: {again}\n")
    failing = StatefulFunctions()

    @failing.bind("test.fns/echo")
    def fail(ctx: Context, message: Message) -> None:
        raise ValueError("not today")

    kafka.send(users, [(None, '{"id":1}'), ("k", '{"id":2}')])
    run(text, failing, checkpoint)
    letters = DeadLetters(parse_module(text))
    found = sorted(letters.read(), key=lambda letter: letter.facts["offset"])
    assert [letter.key for letter in found] == [None, b"k"]
    assert [letter.facts["target"] for letter in found] == ["test.fns/echo/1", "test.fns/echo/2"]

    ends = LetterEnds(letters)
    ends.replay(LetterFilter.of(letter.id for letter in found), to_target=True)
    run(text, failing, checkpoint)
    again_found = sorted(letters.read(), key=lambda letter: letter.facts["offset"])[-2:]
    assert [letter.key for letter in again_found] == [None, b"k"]

    straight, by_topic = again_found
    ends.replay(LetterFilter.of([straight.id]), to_target=True)
    ends.replay(LetterFilter.of([by_topic.id]), to_target=False)
    run(text, echo(out), checkpoint)
    assert reports(kafka, out) == [
        ["1", {"user": {"id": 1}, "offset": 0}, "users"],
        ["2", {"user": {"id": 2}, "offset": 2}, "users"],
    ]


def test_avro_values_get_the_schema_that_transforms_make(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Functions read values by the schema with the new fields and types."""
    users, out = kafka.topic("users"), kafka.topic("out")
    schema = {
        "type": "record",
        "name": "User",
        "namespace": "com.example",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "born", "type": {"type": "int", "logicalType": "date"}},
            {
                "name": "home",
                "type": {
                    "type": "record",
                    "name": "Home",
                    "fields": [{"name": "city", "type": ["null", "string"], "default": None}],
                },
            },
        ],
    }
    text = module(
        kafka,
        f"""\
    - topic: '{users}'
      valueType: test/avro-user
      valueFormat: {{type: avro, schema: '{json.dumps(schema)}'}}
      transforms:
        - {{type: Flatten$Value, delimiter: _}}
        - {{type: TimestampConverter$Value, field: born, target.type: string, format: d MMM yyyy}}
        - {{type: InsertField$Value, timestamp.field: at}}
      targets: [test.fns/echo]
""",
    )
    ada = {"name": "Ada", "born": date(1815, 12, 10), "home": {"city": None}}
    bob = {"name": "Bob", "born": date(1970, 1, 2), "home": {"city": "Ur"}}
    written = json.dumps(schema)
    kafka.send(users, [("a", encode(ada, written)), ("b", encode(bob, written))])
    run(text, echo(out), checkpoint)
    values = [value for _, value, _ in reports(kafka, out)]
    assert [{name: value[name] for name in ("name", "born", "home_city")} for value in values] == [
        {"name": "Ada", "born": "10 Dec 1815", "home_city": None},
        {"name": "Bob", "born": "2 Jan 1970", "home_city": "Ur"},
    ]
    assert all("+00:00" in value["at"] for value in values)


def test_records_of_an_egress_are_transformed(kafka: KafkaHarness, checkpoint: Path) -> None:
    """The topic decides the transforms; records for other topics stay as they are."""
    names, out = kafka.topic("names"), kafka.topic("out")
    routed = kafka.topic("out-de")
    text = module(
        kafka,
        f"    - {{topic: '{names}', valueFormat: {{type: text}}, targets: [test.fns/greet]}}\n",
        f"""\
  topics:
    - topicPattern: '{out}-.*'
      valueFormat: {{type: json}}
      transforms:
        - {{type: ValueToKey, fields: 'id,lang'}}
        - {{type: ReplaceField$Value, exclude: id}}
        - {{type: RegexRouter, regex: '(.*)-([a-z]+)-draft', replacement: '$1-$2'}}
""",
    )
    functions = StatefulFunctions()

    @functions.bind("test.fns/greet")
    def greet(ctx: Context, message: Message) -> None:
        value = json.dumps({"id": ctx.address.id, "text": message.as_string(), "lang": "de"})
        for topic in (f"{out}-de-draft", out):
            ctx.send(KafkaEgressMessage("test/out", topic=topic, key="k", value=value))

    kafka.send(names, [("7", "Hallo")])
    run(text, functions, checkpoint)
    [record] = kafka.receive(routed)
    assert (record.key, record.value) == ('{"id":"7","lang":"de"}', '{"text":"Hallo","lang":"de"}')
    [plain] = kafka.receive(out)
    assert (plain.key, json.loads(plain.value)["id"]) == ("k", "7")


def test_a_record_that_an_egress_cannot_transform_fails_the_function(
    kafka: KafkaHarness, checkpoint: Path
) -> None:
    """Its message is a dead letter, and nothing of the invocation has happened."""
    names, out, dead = kafka.topic("names"), kafka.topic("out"), kafka.topic("dead")
    text = module(
        kafka,
        f"    - {{topic: '{names}', valueFormat: {{type: text}}, targets: [test.fns/echo]}}\n",
        f"""\
  topics:
    - topic: '{out}'
      valueFormat: {{type: json}}
      transforms: [{{type: Flatten$Value}}]
""",
        dead_letters=dead,
    )
    kafka.send(names, [("7", "Hallo")])
    run(text, echo(out), checkpoint)
    [letter] = kafka.receive(dead)
    assert letter.value == "Hallo"
    assert (
        "transforms[0], Flatten: Flatten needs an object"
        in (letter.headers["statefun-error-message"])
    )
    assert kafka.receive(out) == []


def test_only_topics_with_transformed_keys_read_keys_in_python(kafka: KafkaHarness) -> None:
    """Only a topic whose keys are transformed has a key that Python makes."""
    plain = module(kafka, "    - {topic: a, valueType: test/a, targets: [test.fns/echo]}\n")
    [ingress] = parse_module(plain).ingresses
    assert [route.chain for route in ingress.topics] == [None]
    assert [route.deserializer for route in ingress.topics] == [None]
