# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import attrs

from statefun.engine.record_routes import RecordRoutes, route_number
from statefun.module.location import Location
from statefun.module.model import KafkaIngress, Module
from statefun.module.topic_routes import TopicRoute
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.address import TypeName
from statefun.sdk.failure import OnFailure

HERE = Location("module.yaml", 1, 1)
USERS = TopicRoute("users", TypeName("t", "user"), (), HERE)
PATTERN = attrs.evolve(USERS, topic="u.*", is_pattern=True, failure_policy=OnFailure.FAIL)


def ingress(name: str, *routes: TopicRoute) -> KafkaIngress:
    """Return an ingress that skips bad records."""
    id_ = TypeName("t", name)
    return KafkaIngress(id_, "kafka:9092", routes, HERE, failure_policy=OnFailure.SKIP)


def test_a_number_is_that_of_an_ingress_and_its_topic() -> None:
    """Nothing else changes the number: waiting records find their route after a new version's start."""
    one, two = TypeName("t", "one"), TypeName("t", "two")
    others = [(two, USERS), (one, PATTERN), (one, attrs.evolve(PATTERN, is_pattern=False))]
    targets = (TypeName("t", "f"),)

    assert route_number(one, USERS) == 50475206613057
    assert route_number(one, attrs.evolve(USERS, targets=targets)) == route_number(one, USERS)
    assert len({route_number(*each) for each in [(one, USERS), *others]}) == 4


def test_numbers_survive_a_column_of_pandas() -> None:
    """A column of numbers becomes one of floats in pandas if a number is missing."""
    numbers = [route_number(TypeName("t", f"{each}"), USERS) for each in range(1000)]

    assert all(int(float(number)) == number > 0 for number in numbers)


def test_a_route_has_the_policy_of_its_ingress_unless_it_has_its_own() -> None:
    """The policy of the route applies to a record that no function can receive."""
    module = Module((ingress("one", USERS), ingress("two", PATTERN)))
    routes = RecordRoutes.of(module)

    found = [
        routes.route_of(RecordOrigin(topic="users", route=route_number(each.id, each.topics[0])))
        for each in module.ingresses
    ]

    assert [route and route.failure_policy for route in found] == [OnFailure.SKIP, OnFailure.FAIL]


def test_a_record_whose_route_is_gone_takes_that_of_its_topic() -> None:
    """An example is a record that waits for a retry while its ingress gets another id."""
    routes = RecordRoutes.of(Module((ingress("one", PATTERN), ingress("two", USERS))))

    found = [routes.route_of(RecordOrigin(topic=topic, route=5)) for topic in ("users", "ur", "x")]

    assert [route and route.topic for route in found] == ["users", "u.*", None]
