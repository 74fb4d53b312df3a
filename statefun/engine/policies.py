# SPDX-License-Identifier: Apache-2.0
"""The failure policies of module files, and what applies where none is declared."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from statefun.engine.letters import DeadLetterTopic
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute, route_of
from statefun.module.transforming import seen_record
from statefun.sdk.errors import RecordError, StatefunError, ValueDecodeError
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.record import IngressRecord


@attrs.frozen
class Policies:
    """The failure policies of the module files."""

    dead_letters: DeadLetterTopic | None = None
    """The topic of dead letters, if there is one."""
    records: Sequence[tuple[TopicRoute, OnFailure | None]] = ()
    """Policies for records that no function can receive, by topic, where declared."""
    unregistered: OnFailure = OnFailure.FAIL
    """The policy for messages to functions that are not registered."""
    routes: tuple[TopicRoute, ...] = attrs.field(init=False)
    """The routes of all topics."""
    have_routers: bool = attrs.field(init=False)
    """Whether functions see other names of topics than Kafka has."""

    @classmethod
    def of(cls, module: Module, unregistered: OnFailure) -> Policies:
        """Collect the policies of ``module``, and the one for messages without a function."""
        chosen = [
            (route, route.failure_policy or ingress.failure_policy)
            for ingress in module.routed
            for route in ingress.topics
        ]
        return cls(DeadLetterTopic.of(module.dead_letters), chosen, unregistered)

    def of_topic(self, topic: str) -> OnFailure | None:
        """Return the policy for a topic's records that no function can receive, if declared."""
        route = self.route_of(topic)
        return next((policy for each, policy in self.records if each is route), None)

    def of_failure(
        self, declared: FailurePolicy | None, topic: str | None, error: StatefunError
    ) -> FailurePolicy | None:
        """Return the policy for a message on which a function has failed, if declared.

        Args:
            declared: the function's own policy.
            topic: of the record that the message was, if it was one: whether a function can
                receive it at all is the topic's business.
            error: the failure.
        """
        if topic is not None and isinstance(error, ValueDecodeError | RecordError):
            return self.of_topic(topic)
        return declared

    def route_of(self, topic: str) -> TopicRoute | None:
        """Return the route of a topic's records, if there is one."""
        return route_of(self.routes, topic)

    @routes.default
    def _routes_of_records(self) -> tuple[TopicRoute, ...]:
        return tuple(route for route, _ in self.records)

    @have_routers.default
    def _look_for_routers(self) -> bool:
        return any(
            route.chain is not None and route.chain.changes_topic for route, _ in self.records
        )

    def seen_record(self, record: IngressRecord | None) -> IngressRecord | None:
        """Return a record as functions see it, with the name that transforms give to its topic."""
        return None if record is None else seen_record(self.routes, record)

    @property
    def default(self) -> OnFailure:
        """The default policy."""
        return OnFailure.DEAD_LETTER if self.dead_letters else OnFailure.FAIL

    def last_resort(self, policy: FailurePolicy | None) -> OnFailure:
        """Return the policy that applies after the last attempt."""
        return (policy.then if isinstance(policy, Retry) else policy) or self.default
