# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun import ModuleError
from statefun.module.loader import parse_module
from statefun.module.topic_routes import TopicRoute, route_of

REST = "valueType: example/Name, targets: [example/greeter]"


def topics(*entries: str) -> tuple[TopicRoute, ...]:
    """Read the topics of an ingress."""
    listed = "".join(f"    - {{{entry}, {REST}}}\n" for entry in entries)
    text = (
        "kind: io.statefun.kafka.v1/ingress\nspec:\n  id: example/names\n  address: kafka:9092\n"
        f"  startupPosition: {{type: earliest}}\n  topics:\n{listed}"
    )
    return parse_module(text, "m.yaml").ingresses[0].topics


def test_a_pattern_matches_whole_names() -> None:
    """The name of a topic goes before patterns, and the first pattern before others."""
    routes = topics("topicPattern: 'a.*'", "topicPattern: 'ab?'", "topic: ab")
    found = [route_of(routes, topic) for topic in ("ab", "a", "abc", "ba")]
    assert found == [routes[2], routes[0], routes[0], None]


def test_repeated_partitions_are_read_once() -> None:
    """Partitions stay in the order of the file."""
    [route] = topics("topic: a, partitions: [2, 0, 2]")
    assert (route.partitions, route.is_pattern) == ((2, 0), False)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["topicPattern: 'a('"], "is not a regular expression: missing ), unterminated subpattern"),
        (["topicPattern: '(?P<n>a)'"], "must not have a named group or a back-reference"),
        (["topicPattern: a, topic: b"], "'topicPattern' and 'topic' cannot be used together"),
        (
            ["topicPattern: a, partitions: [0]"],
            "'topicPattern' and 'partitions' cannot be used together",
        ),
        (["failurePolicy: skip"], "missing required key 'topic'"),
        (["topic: a, partitions: [-1]"], "'-1' is not a whole number from 0 to"),
        (
            ["topic: a, partitions: []"],
            "must not be empty; list at least one of: numbers of partitions",
        ),
        (["topicPattern: a", "topicPattern: a"], "duplicate topicPattern 'a'; it is first listed"),
        (["topic: a, partitions: [0]", "topic: b"], "some topics list partitions and some do not"),
    ],
)
def test_contradicting_keys_of_topics_are_reported(entries: list[str], message: str) -> None:
    """The problem has the location of the topic."""
    with pytest.raises(ModuleError) as refused:
        topics(*entries)
    [problem] = refused.value.problems
    assert message in str(problem)
    assert problem.key.startswith("spec.topics")
