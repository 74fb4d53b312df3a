# SPDX-License-Identifier: Apache-2.0
"""The routes by which records come to functions; rows name a route by its number."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import attrs

from statefun.module.event_time import EventTime
from statefun.module.model import Module
from statefun.module.recorded_values import RecordedValues
from statefun.module.topic_routes import TopicRoute, route_of
from statefun.protocol.runtime_pb2 import RecordOrigin
from statefun.sdk.address import TypeName
from statefun.sdk.times import in_milliseconds

_NUMBER_BYTES = 6  # pandas converts a column of integers with nulls to floats, which have 53 bits


def route_number(ingress: TypeName, route: TopicRoute) -> int:
    """Return the number of an ingress's route.

    The number of a route is the same in every run, whatever else module files declare: records that wait
    in a checkpoint find their route by the number.
    """
    name = f"{ingress} {route.topic} {route.is_pattern}"
    return int.from_bytes(blake2b(name.encode(), digest_size=_NUMBER_BYTES).digest(), "big")


def _changes_topics(routes: RecordRoutes) -> bool:
    chains = (route.chain for route in routes.by_number.values())
    return any(chain is not None and chain.changes_topic for chain in chains)


def _runs_code(routes: RecordRoutes) -> bool:
    has_deserializer = any(route.deserializer for route in routes.by_number.values())
    return has_deserializer or any(each.settings.field for each in routes.event_times.values())


@attrs.frozen
class EventRoute:
    """A route whose records have event times."""

    ingress: str
    """The id of the ingress."""
    settings: EventTime
    values: RecordedValues
    """The values of the records, in whose fields the event times may be."""

    @property
    def max_future(self) -> int:
        """How far a record may be ahead of the clock, in milliseconds."""
        return in_milliseconds(self.settings.max_future)


@attrs.frozen
class RecordRoutes:
    """The routes of all ingresses."""

    by_number: Mapping[int, TopicRoute] = attrs.field(factory=dict)
    """The routes by number; a route without a failure policy has that of its ingress."""
    event_times: Mapping[int, EventRoute] = attrs.field(factory=dict)
    """The routes of ingresses that declare event time, by number."""
    change_topics: bool = attrs.field(
        init=False, default=attrs.Factory(_changes_topics, takes_self=True)
    )
    """Whether transforms rename topics, so that functions see other names than Kafka has."""
    runs_code: bool = attrs.field(init=False, default=attrs.Factory(_runs_code, takes_self=True))
    """Whether code of users makes values of records, or reads event times from them, before functions are called."""

    @classmethod
    def of(cls, module: Module) -> RecordRoutes:
        """Return the routes of a module's ingresses."""
        return cls(
            {
                route_number(ingress.id, route): attrs.evolve(
                    route, failure_policy=route.failure_policy or ingress.failure_policy
                )
                for ingress in module.routed
                for route in ingress.topics
            },
            {
                route_number(ingress.id, route): EventRoute(
                    str(ingress.id),
                    ingress.event_time,
                    RecordedValues.of(route),
                )
                for ingress in module.ingresses
                if ingress.event_time is not None
                for route in ingress.topics
            },
        )

    def route_of(self, origin: RecordOrigin) -> TopicRoute | None:
        """Return the route of a record; if it is not declared any more, another route of the record's topic.

        The result is None if no route of the topic is declared.
        """
        route = self.by_number.get(origin.route)
        return route_of(self.by_number.values(), origin.topic) if route is None else route
