# SPDX-License-Identifier: Apache-2.0
"""The ``topics`` of a Kafka ingress: their names, and the functions that get their records."""

from __future__ import annotations

import re

import attrs

from statefun.module.kinds.routes import COMMON, legacy_route, made_route, routes
from statefun.module.topic_routes import TopicRoute
from statefun.module.yaml.nodes import Node
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import (
    integer,
    list_of,
    parsed,
    scalar_schema,
    text,
    typename,
)
from statefun.module.yaml.shapes import Key, Shape, described


def _regular_expression(string: str) -> str:
    try:
        re.compile(string)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if re.search(r"\(\?P|\\[1-9]", string):
        raise ValueError("has a named group or a back-reference, which Spark reads otherwise")
    return string


TOPIC = Key("topic", text, "the Kafka topic to read", required=True, example="users")
TOPIC_PATTERN = Key(
    "topicPattern",
    parsed(
        _regular_expression,
        "a regular expression",
        scalar_schema("regular expression", type="string", minLength=1),
    ),
    "in the place of topic: a regular expression for the whole names of topics, also of those "
    "that are made later; topics that are listed by their names go before",
    example="events-.*",
)
PARTITIONS = Key(
    "partitions",
    list_of(integer(0), "numbers of partitions"),
    "the only partitions of the topic to read; either all topics of an ingress list them, or none",
    default="(all, also those that are added later)",
    example=[0, 1],
)
KEY_TYPE = Key(
    "keyType",
    typename,
    "a registered type that keys are decoded as, whose string form is the id; such as "
    "io.statefun.kafka/int and io.statefun.kafka/long for numbers as Java's serializers write them",
    default="(none: keys are text, and the id)",
    example="io.statefun.kafka/long",
)
_SHAPE = Shape(
    (
        attrs.evolve(TOPIC, required=False, default="(required, or topicPattern)"),
        TOPIC_PATTERN,
        PARTITIONS,
        KEY_TYPE,
        *COMMON,
    )
)
_NAMED = _SHAPE.keys[0]


@described(_SHAPE.schema)
def _route(node: Node, problems: Problems) -> TopicRoute:
    values = _SHAPE.read(node, problems)
    given = [key for key in (_NAMED, TOPIC_PATTERN) if values.attempted(key)]
    if not given:
        sentence = f"missing required key {TOPIC.name!r}: {TOPIC.doc}"
        raise problems.report(node.location, node.path, sentence)
    if len(given) > 1 or (given == [TOPIC_PATTERN] and values.attempted(PARTITIONS)):
        other = TOPIC if len(given) > 1 else PARTITIONS
        sentence = f"{TOPIC_PATTERN.name!r} and {other.name!r} exclude each other"
        problems.report(node.location, node.path, sentence)
    return attrs.evolve(
        made_route(values[given[0]], values, node, problems),
        key_type=values.get(KEY_TYPE),
        is_pattern=TOPIC_PATTERN in values,
        partitions=tuple(dict.fromkeys(values.get(PARTITIONS, ()))),
    )


_DOC = "the topics to read, each with its valueType and targets"
TOPICS = Key("topics", routes(_route, TOPIC.name, TOPIC_PATTERN.name), _DOC, required=True)
LEGACY_TOPICS = Key("topics", routes(legacy_route(TOPIC), TOPIC.name), _DOC, required=True)
