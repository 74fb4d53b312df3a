# SPDX-License-Identifier: Apache-2.0
"""The ``topics`` of a Kafka ingress: which ones, and what becomes of their records."""

from __future__ import annotations

import re

import attrs

from statefun.sdk.failure import OnFailure
from statefun.spec.model import TopicRoute
from statefun.spec.problems import Problems
from statefun.spec.readers import integer, list_of, member, parsed, scalar_schema, text
from statefun.spec.routes import TARGETS, VALUE_TYPE, legacy_route, routes
from statefun.spec.shapes import Key, Shape, described
from statefun.spec.yaml_nodes import Node


def _regular_expression(string: str) -> str:
    try:
        re.compile(string)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if "(?P" in string:
        raise ValueError("has a named group, which Spark's regular expressions write otherwise")
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
FAILURE_POLICY = Key(
    "failurePolicy",
    member("failurePolicy", OnFailure),
    "what becomes of records that no function can receive",
    default="(dead-letter where there is a deadLetterTopic, else fail)",
    example="skip",
)
_SHAPE = Shape(
    (
        attrs.evolve(TOPIC, required=False),
        TOPIC_PATTERN,
        PARTITIONS,
        VALUE_TYPE,
        TARGETS,
        FAILURE_POLICY,
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
    return TopicRoute(
        values[given[0]],
        values[VALUE_TYPE],
        values[TARGETS],
        node.location,
        values.get(FAILURE_POLICY),
        is_pattern=TOPIC_PATTERN in values,
        partitions=tuple(dict.fromkeys(values.get(PARTITIONS, ()))),
    )


_DOC = "the topics to read, each with its valueType and targets"
TOPICS = Key("topics", routes(_route, TOPIC.name, TOPIC_PATTERN.name), _DOC, required=True)
LEGACY_TOPICS = Key("topics", routes(legacy_route(TOPIC), TOPIC.name), _DOC, required=True)
