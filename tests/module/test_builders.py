# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest

from statefun import (
    DefinitionError,
    KafkaEgress,
    KafkaEgressBuilder,
    KafkaIngress,
    KafkaIngressBuilder,
    KafkaRecord,
    KafkaStartupPosition,
    ModuleError,
    OnFailure,
    StringType,
)
from statefun.module.loader import load_module_files, parse_module
from statefun.module.location import Location
from statefun.module.model import AutoOffsetReset
from statefun.module.model import KafkaIngress as DeclaredIngress

TARGETS = ["example/greeter"]
Step = Callable[[KafkaIngressBuilder], KafkaIngressBuilder]


def declared() -> KafkaIngressBuilder:
    """Return an ingress with the required settings."""
    return (
        KafkaIngress.for_id("example/names")
        .with_kafka_address("kafka:9092")
        .with_consumer_group_id("greeter")
    )


def in_yaml(*lines: str) -> DeclaredIngress:
    """Return the same ingress, from a module file with further lines."""
    head = "kind: io.statefun.kafka.v1/ingress\nspec:\n  id: example/names\n  address: kafka:9092\n"
    text = head + "  consumerGroupId: greeter\n" + "".join(f"  {line}\n" for line in lines)
    return parse_module(text).ingresses[0]


def same(one: DeclaredIngress, other: DeclaredIngress) -> bool:
    """Compare ingresses, but for where they are declared."""
    nowhere = Location("", 0, 0)

    def moved(ingress: DeclaredIngress) -> dict[str, object]:
        topics = tuple(attrs.evolve(route, location=nowhere) for route in ingress.topics)
        places = {"location": nowhere, "bootstrap_locations": ()}
        return attrs.asdict(ingress, recurse=False) | {**places, "topics": topics}

    return moved(one) == moved(other)


TOPIC = "topics: [{topic: names, valueType: io.statefun.types/string, targets: [example/greeter]}]"
BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (lambda i: i, "commitOffsets: true"),
        (
            lambda i: i.with_startup_position(KafkaStartupPosition.from_earliest()),
            "startupPosition: {type: earliest}",
        ),
        (
            lambda i: i.with_startup_position(KafkaStartupPosition.from_latest()),
            "startupPosition: {type: latest}",
        ),
        (
            lambda i: i.with_startup_position(KafkaStartupPosition.from_group_offsets()),
            "startupPosition: {type: group-offsets}",
        ),
        (
            lambda i: i.with_startup_position(
                KafkaStartupPosition.from_specific_offsets({("names", 1): 7})
            ),
            "startupPosition: {type: specific-offsets, offsets: [names/1: 7]}",
        ),
        (
            lambda i: i.with_startup_position(
                KafkaStartupPosition.from_date(datetime(2026, 1, 2, 3, 4, 5, 6000, BERLIN))
            ),
            "startupPosition: {type: date, date: '2026-01-02 03:04:05.006 +0100'}",
        ),
        (
            lambda i: i.with_auto_offset_reset_position(AutoOffsetReset.EARLIEST),
            "autoOffsetResetPosition: earliest",
        ),
        (
            lambda i: i.with_auto_offset_reset_position("earliest"),
            "autoOffsetResetPosition: earliest",
        ),
        (lambda i: i.with_failure_policy(OnFailure.SKIP), "failurePolicy: skip"),
        (lambda i: i.with_bootstrap_from("a/rows", "a/codes"), "bootstrapFrom: [a/rows, a/codes]"),
        (
            lambda i: i.with_properties({"fetch.min.bytes": 7}).with_properties({"a.b": "c"}),
            "properties: [fetch.min.bytes: 7, a.b: c]",
        ),
        (lambda i: i.with_option("commitOffsets", value=False), "commitOffsets: false"),
    ],
)
def test_a_builder_makes_the_ingress_of_a_module_file(step: Step, line: str) -> None:
    """Each method of the builder has the effect of its key."""
    topic = declared().with_topic("names", targets=TARGETS, value_type=StringType)
    assert isinstance(step(topic).build(), KafkaIngress)
    assert same(step(topic).build(), in_yaml(TOPIC, line))


def test_topics_of_a_builder_take_all_keys() -> None:
    """Topics take patterns and partitions; a value type may be a typename."""
    name = "io.statefun.types/string"
    named = declared().with_topic("names", targets=TARGETS, value_type=name, partitions=[2, 0])
    line = "topics: [{topic: names, partitions: [2, 0], valueType: io.statefun.types/string, "
    assert same(named.build(), in_yaml(line + "targets: [example/greeter]}]"))
    pattern = declared().with_topic_pattern("na.*", targets=TARGETS, value_type=StringType)
    line = "topics: [{topicPattern: na.*, valueType: io.statefun.types/string, "
    assert same(pattern.build(), in_yaml(line + "targets: [example/greeter]}]"))


@pytest.mark.parametrize(
    ("step", "semantic"),
    [
        (lambda e: e, "at-least-once"),
        (lambda e: e.with_no_producer_semantics(), "none"),
        (lambda e: e.with_at_least_once_producer_semantics(), "at-least-once"),
        (
            lambda e: e.with_exactly_once_producer_semantics(timedelta(minutes=5)),
            "exactly-once, transactionTimeout: 5min",
        ),
    ],
)
def test_a_builder_makes_the_egress_of_a_module_file(
    step: Callable[[KafkaEgressBuilder], KafkaEgressBuilder], semantic: str
) -> None:
    """Its semantics, properties and everything else."""
    egress = step(KafkaEgress.for_id("example/out").with_kafka_address("kafka:9092"))
    built = egress.with_properties({"linger.ms": 7}).with_option("deadLetterTopic", "dead").build()
    found = parse_module(
        "kind: io.statefun.kafka.v1/egress\n"
        "spec: {id: example/out, address: 'kafka:9092', deadLetterTopic: dead, "
        f"properties: [linger.ms: 7], deliverySemantic: {{type: {semantic}}}}}\n"
    ).egresses[0]
    assert isinstance(built, KafkaEgress)
    assert attrs.asdict(built) | {"location": None} == attrs.asdict(found) | {"location": None}


def test_all_problems_of_a_builder_are_reported_with_the_line_of_the_program() -> None:
    """The messages are those of module files; the location is in the program."""
    with pytest.raises(ModuleError) as refused:
        KafkaIngress.for_id("names").with_topic(
            "names", targets=["*"], value_type=StringType, partition=[1]
        ).with_properties({"key.deserializer": "x"}).build()
    assert len(refused.value.problems) == 6
    texts = [str(problem) for problem in refused.value.problems]
    assert all(text.startswith(f"{__file__}:") for text in texts)
    assert any("unknown key 'partition'; did you mean 'partitions'?" in text for text in texts)
    assert any("property 'key.deserializer' must not be set" in text for text in texts)


def test_a_deserializer_sets_the_value_type_of_topics() -> None:
    """The type of the deserializer is that of all topics without a value type."""

    def read(record: KafkaRecord) -> str:
        return str(record.value)

    ingress = declared().with_topic("names", targets=TARGETS).with_deserializer(read, StringType)
    [route] = ingress.build().topics
    assert str(route.value_type) == StringType.typename
    assert route.deserializer is not None
    assert (route.deserializer.read, route.deserializer.name) == (read, "example/names")


@pytest.mark.parametrize(
    "keys",
    [
        {"valueFormat": {"type": "json"}},
        {"valueFormat": {"type": "json", "schemasEnable": True}},
        {"valueFormat": {"type": "text"}},
        {
            "valueFormat": {"type": "json"},
            "transforms": [{"type": "MaskField$Value", "fields": "card"}],
        },
    ],
)
def test_values_have_either_a_deserializer_or_a_format(keys: dict[str, Any]) -> None:
    """The format would define another type with the typename of the deserializer's values."""
    ingress = declared().with_topic("names", targets=TARGETS, **keys)

    with pytest.raises(DefinitionError, match="topic names: the deserializer of the ingress"):
        ingress.with_deserializer(str, StringType).build()


def test_a_format_for_keys_defines_no_type_of_values() -> None:
    """Transforms make keys of JSON values, and the deserializer makes the values of messages."""
    ingress = declared().with_topic(
        "names",
        targets=TARGETS,
        valueFormat={"type": "json"},
        transforms=[{"type": "ValueToKey", "fields": "name"}],
    )

    [route] = ingress.with_deserializer(str, StringType).build().topics

    assert route.changes_key
    assert route.value_format is None
    assert str(route.value_type) == StringType.typename


@pytest.mark.parametrize(("read", "type_"), [("x", StringType), (str, "a/b")])
def test_a_deserializer_that_is_no_function_or_has_no_type_is_refused(
    read: Any, type_: Any
) -> None:
    """The error names the wrong argument."""
    ingress = declared().with_topic("names", targets=TARGETS, value_type=StringType)
    with pytest.raises(DefinitionError, match="example/names: a deserializer must be a function"):
        ingress.with_deserializer(read, type_).build()


def test_components_in_python_and_in_files_have_different_ids(tmp_path: Path) -> None:
    """An id can be declared only once, in Python or in a file."""
    file = tmp_path / "module.yaml"
    file.write_text(
        "kind: io.statefun.kafka.v1/egress\nspec: {id: example/out, address: 'kafka:9092'}\n"
    )
    other = KafkaEgress.for_id("example/other").with_kafka_address("kafka:9092").build()
    module = load_module_files([file], components=[other])
    assert [str(egress.id) for egress in module.egresses] == ["example/out", "example/other"]
    again = KafkaEgress.for_id("example/out").with_kafka_address("kafka:9092").build()
    with pytest.raises(
        ModuleError, match="duplicate egress id 'example/out'; it is first"
    ) as found:
        load_module_files([file], components=[again])
    assert found.value.problems[0].file == __file__


def test_a_builder_in_place_of_a_component_is_refused() -> None:
    """The error says that .build() was not called."""
    with pytest.raises(DefinitionError, match=r"call its .build\(\)"):
        load_module_files([], components=[declared()])  # type: ignore[list-item] # what is tested
