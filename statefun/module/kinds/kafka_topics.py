# SPDX-License-Identifier: Apache-2.0
"""Reads the key ``topics`` of a Kafka ingress: topics, with the functions that get their records."""

from __future__ import annotations

import attrs

from statefun.module.kinds.routes import COMMON, legacy_route, made_route, routes
from statefun.module.topic_routes import TopicRoute
from statefun.module.yaml.nodes import Node
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import (
    choice,
    integer,
    list_of,
    regular_expression,
    text,
    typename,
)
from statefun.module.yaml.shapes import Key, Shape, described

TOPIC = Key("topic", text, "the Kafka topic to read", required=True, example="users")
TOPIC_PATTERN = Key(
    "topicPattern",
    regular_expression,
    "instead of topic: a regular expression that matches whole topic names, also of topics that are "
    "created later; an entry with the name of a topic goes before patterns",
    example="events-.*",
)
PARTITIONS = Key(
    "partitions",
    list_of(integer(0), "numbers of partitions"),
    "the only partitions of the topic to read; either all topics of an ingress list them, or none",
    default="(all, also partitions that are added later)",
    example=[0, 1],
)
KEY_TYPE = Key(
    "keyType",
    typename,
    "a registered type that decodes keys; the string form of a key is the id. The types "
    "io.statefun.kafka/int and io.statefun.kafka/long decode numbers of Java's serializers",
    default="(none: a key is text, and is the id)",
    example="io.statefun.kafka/long",
)
TOMBSTONES = Key(
    "tombstones",
    choice("tombstones", {"reject": False, "deliver": True}),
    "whether records without a value are rejected, or become messages without a value, which a handler for None takes",
    default="reject",
    example="deliver",
)
_SHAPE = Shape(
    (
        attrs.evolve(TOPIC, required=False, default="(required, or topicPattern)"),
        TOPIC_PATTERN,
        PARTITIONS,
        KEY_TYPE,
        TOMBSTONES,
        *COMMON,
    )
)
_NAMED = _SHAPE.keys[0]


@described(_SHAPE.schema)
def _route(node: Node, problems: Problems) -> TopicRoute:
    values = _SHAPE.read(node, problems)
    written_keys = [key for key in (_NAMED, TOPIC_PATTERN) if values.attempted(key)]
    if not written_keys:
        sentence = f"missing required key {TOPIC.name!r}: {TOPIC.doc}"
        raise problems.report(node.location, node.path, sentence)
    if len(written_keys) > 1 or (written_keys == [TOPIC_PATTERN] and values.attempted(PARTITIONS)):
        other = TOPIC if len(written_keys) > 1 else PARTITIONS
        sentence = f"{TOPIC_PATTERN.name!r} and {other.name!r} cannot be used together"
        problems.report(node.location, node.path, sentence)
    route = made_route(values[written_keys[0]], values, node, problems)
    if route.changes_key and values.attempted(KEY_TYPE):
        sentence = f"{KEY_TYPE.name!r} cannot be used with a keyFormat or transforms of keys, which make the id"
        problems.report(node.location, node.path, sentence)
    return attrs.evolve(
        route,
        key_type=values.get(KEY_TYPE),
        is_pattern=TOPIC_PATTERN in values,
        partitions=tuple(dict.fromkeys(values.get(PARTITIONS, ()))),
        delivers_tombstones=values.get(TOMBSTONES, False),
    )


_DOC = "the topics to read, each with its valueType and targets"
TOPICS = Key("topics", routes(_route, TOPIC.name, TOPIC_PATTERN.name), _DOC, required=True)
LEGACY_TOPICS = Key("topics", routes(legacy_route(TOPIC), TOPIC.name), _DOC, required=True)
