# SPDX-License-Identifier: Apache-2.0
"""Reads components of the kind ``io.statefun.kafka.v1/ingress``."""

from __future__ import annotations

from datetime import datetime

import attrs

from statefun.module.kinds.event_time_keys import EVENT_TIME
from statefun.module.kinds.kafka_settings import ADDRESS, PROPERTIES, KafkaSettings
from statefun.module.kinds.kafka_topics import LEGACY_TOPICS, TOPICS
from statefun.module.kinds.offsets import specific_offsets
from statefun.module.kinds.routes import FAILURE_POLICY
from statefun.module.location import Location
from statefun.module.model import (
    AutoOffsetReset,
    FromDate,
    FromEarliest,
    FromGroupOffsets,
    FromLatest,
    FromSpecificOffsets,
    KafkaIngress,
    OnDataLoss,
    StartupPosition,
    StopPosition,
)
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.nodes import ListNode, MapNode, Node
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import date, flag, list_of, member, text, typename
from statefun.module.yaml.shapes import Key, Shape, Values, Variants, described

OFFSETS = Key(
    "offsets",
    specific_offsets,
    "the offset of each 'topic/partition' to start at",
    required=True,
    example=[{"users/0": 123}],
)
# The documents of Stateful Functions name `date` for both types; at-timestamp has no example.
DATE = Key(
    "date",
    date,
    "the time to start at, with a time zone; reading begins at the first record of this time or later",
    example="2026-01-31 12:00:00.000 +0100",
)
TIMESTAMP = Key(
    "timestamp", date, f"{DATE.doc}; another name of {DATE.name}", example=1769857200000
)

STARTUP_POSITIONS = Variants(
    "Invalid startup position type: {type}; valid values are [{types}]",
    {
        "group-offsets": (),
        "earliest": (),
        "latest": (),
        "specific-offsets": (OFFSETS,),
        "date": (DATE, TIMESTAMP),
        "at-timestamp": (DATE, TIMESTAMP),
    },
)


_STOP_OFFSETS = attrs.evolve(OFFSETS, doc="the offset of each 'topic/partition' to stop before")
_STOP_DATE = attrs.evolve(
    DATE,
    doc="the time to stop at, with a time zone; reading ends before the first record of this time or "
    "later",
)
_STOP_TIMESTAMP = attrs.evolve(TIMESTAMP, doc=f"{_STOP_DATE.doc}; another name of {DATE.name}")
STOP_POSITIONS = Variants(
    "Invalid stop position type: {type}; valid values are [{types}]",
    {
        "latest": (),
        "specific-offsets": (_STOP_OFFSETS,),
        "date": (_STOP_DATE, _STOP_TIMESTAMP),
        "at-timestamp": (_STOP_DATE, _STOP_TIMESTAMP),
    },
)


@described(STOP_POSITIONS.schema)
def stop_position(node: Node, problems: Problems) -> StopPosition:
    """Read the position at which reading stops."""
    variant, values = STOP_POSITIONS.read(node, problems)
    if variant == "specific-offsets":
        return FromSpecificOffsets(values[_STOP_OFFSETS])
    return _latest_or_date(variant, values, (_STOP_DATE, _STOP_TIMESTAMP), node, problems)


@described(STARTUP_POSITIONS.schema)
def startup_position(node: Node, problems: Problems) -> StartupPosition:
    """Read the position at which reading starts on a fresh checkpoint."""
    variant, values = STARTUP_POSITIONS.read(node, problems)
    match variant:
        case "group-offsets":
            return FromGroupOffsets()
        case "earliest":
            return FromEarliest()
        case "specific-offsets":
            return FromSpecificOffsets(values[OFFSETS])
        case _:
            return _latest_or_date(variant, values, (DATE, TIMESTAMP), node, problems)


def _latest_or_date(
    variant: str, values: Values, keys: tuple[Key[datetime], ...], node: Node, problems: Problems
) -> FromLatest | FromDate:
    if variant == "latest":
        return FromLatest()
    written_keys = [key for key in keys if values.attempted(key)]
    if len(written_keys) != 1:
        sentence = (
            "has both 'date' and 'timestamp'; give one of them"
            if written_keys
            else f"missing required key 'date': {keys[0].doc}"
        )
        raise problems.report(node.location, node.path, sentence)
    return FromDate(values[written_keys[0]])


CONSUMER_GROUP_ID = Key(
    "consumerGroupId",
    text,
    "the consumer group that offsets are committed to; the startup position group-offsets needs it",
    default="(the property `group.id`)",
    example="greeter",
)
STARTUP_POSITION = Key(
    "startupPosition",
    startup_position,
    "where to start reading; only used on a fresh checkpoint",
    default={"type": "group-offsets"},
    example={"type": "earliest"},
)
STOP_POSITION = Key(
    "stopPosition",
    stop_position,
    "where to stop reading: before given offsets, before the first record of a date, or at the end "
    "that a partition has when the application starts (latest, also for partitions without a given "
    "offset); the application ends when all ingresses have reached their stop positions, and a "
    "later run goes on from there",
    default="(never)",
    example={"type": "latest"},
)
BOOTSTRAP_FROM = Key(
    "bootstrapFrom",
    list_of(typename, "ids of Kafka ingresses"),
    "the ingresses, such as those of tables, that are read to the ends that they have when the application starts, "
    "before this ingress is read",
    default="(none)",
    example=["com.example.shop/customers"],
)
AUTO_OFFSET_RESET = Key(
    "autoOffsetResetPosition",
    member("autoOffsetResetPosition", AutoOffsetReset),
    "where to start when an offset is missing or out of range",
    default="latest",
    example="earliest",
)
COMMIT_OFFSETS = Key(
    "commitOffsets",
    flag("commitOffsets"),
    "whether the offsets of processed records are committed to the consumer group, for tools that "
    "show its lag",
    default=True,
    example=False,
)
ON_DATA_LOSS = Key(
    "onDataLoss",
    member("onDataLoss", OnDataLoss),
    "what to do when records were deleted before they were read, by retention or with their topic; "
    "a topic that was deleted and created again is refused in any case",
    default="fail",
    example="go-on",
)
_MESSAGES = "the valueType of a topic says how its records become messages"
_FORBIDDEN = {
    "key.deserializer": "keys are the ids of addresses, in UTF-8",
    "value.deserializer": _MESSAGES,
    "interceptor.classes": _MESSAGES,
    "enable.auto.commit": "offsets are committed with micro-batches; see commitOffsets",
    "auto.commit.interval.ms": "offsets are committed with micro-batches; see commitOffsets",
}
_BEFORE_TOPICS = (ID, ADDRESS, CONSUMER_GROUP_ID, STARTUP_POSITION, AUTO_OFFSET_RESET)
_PROPERTIES = attrs.evolve(
    PROPERTIES,
    doc=f"{PROPERTIES.doc}; isolation.level is read_committed unless it is set",
)
_AFTER_TOPICS = (
    BOOTSTRAP_FROM,
    STOP_POSITION,
    FAILURE_POLICY,
    COMMIT_OFFSETS,
    ON_DATA_LOSS,
    _PROPERTIES,
)
KAFKA_INGRESS = Shape((*_BEFORE_TOPICS, TOPICS, EVENT_TIME, *_AFTER_TOPICS))
_LEGACY = Shape((*_BEFORE_TOPICS, LEGACY_TOPICS, *_AFTER_TOPICS))


def read_kafka_ingress(component: Component, problems: Problems) -> KafkaIngress:
    """Read a component as a Kafka ingress; report its problems."""
    topics = LEGACY_TOPICS if component.legacy else TOPICS
    values = (_LEGACY if component.legacy else KAFKA_INGRESS).read(component.spec, problems)
    settings = KafkaSettings(component.spec, values, problems, _PROPERTIES)
    settings.forbid(_FORBIDDEN)
    position = values.get(STARTUP_POSITION, FromGroupOffsets())
    # An invalid startup position may have been meant as one that needs no group.
    if position == FromGroupOffsets() and (
        STARTUP_POSITION in values or not values.attempted(STARTUP_POSITION)
    ):
        because = "startupPosition group-offsets, the default, starts at the offsets of this group"
        settings.require(CONSUMER_GROUP_ID, "group.id", because)
    routes = values.get(topics, ())
    if len({bool(route.partitions) for route in routes}) > 1:
        sentence = (
            "some topics list partitions and some do not; list them for all topics, or declare "
            "two ingresses"
        )
        problems.report(component.spec.location, f"{component.spec.path}.topics", sentence)
    return KafkaIngress(
        address=settings.address(),
        consumer_group_id=settings.get(CONSUMER_GROUP_ID, "group.id"),
        auto_offset_reset=settings.get(AUTO_OFFSET_RESET, "auto.offset.reset")
        or AutoOffsetReset.LATEST,
        properties=settings.rest(),
        startup_position=position,
        failure_policy=values.get(FAILURE_POLICY),
        commit_offsets=values.get(COMMIT_OFFSETS, default=True),
        on_data_loss=values.get(ON_DATA_LOSS, OnDataLoss.FAIL),
        stop_position=values.get(STOP_POSITION),
        event_time=values.get(EVENT_TIME),
        bootstrap_from=values.get(BOOTSTRAP_FROM, ()),
        bootstrap_locations=_locations(component.spec, BOOTSTRAP_FROM.name),
        id=values[ID],
        topics=values[topics],
        location=component.location,
    )


def _locations(spec: Node, name: str) -> tuple[Location, ...]:
    """Return the locations of the items in the list of a key; no locations if the key has no list."""
    node = spec.get(name) if isinstance(spec, MapNode) else None
    return tuple(item.location for item in node.items) if isinstance(node, ListNode) else ()
