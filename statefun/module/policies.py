# SPDX-License-Identifier: Apache-2.0
"""The failure policies of module files, and what applies where none is declared."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from statefun.module.letters import DeadLetterTopic
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute, route_of
from statefun.sdk.address import TypeName
from statefun.sdk.errors import RecordError, StatefunError, ValueDecodeError
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry


@attrs.frozen
class Policies:
    """The failure policies of the module files."""

    dead_letters: DeadLetterTopic | None = None
    """The topic of dead letters, if there is one."""
    records: Sequence[tuple[TopicRoute, OnFailure | None]] = ()
    """Policies for records that no function can receive, by topic, where declared."""
    unregistered: OnFailure = OnFailure.FAIL
    """The policy for messages to functions that are not registered."""

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
        policies = dict(self.records)
        route = route_of(policies, topic)
        return None if route is None else policies[route]

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

    def key_type_of(self, topic: str) -> TypeName | None:
        """Return of which type a topic's keys are, if they are not texts."""
        route = route_of(dict(self.records), topic)
        return None if route is None else route.key_type

    @property
    def default(self) -> OnFailure:
        """The default policy."""
        return OnFailure.DEAD_LETTER if self.dead_letters else OnFailure.FAIL

    def last_resort(self, policy: FailurePolicy | None) -> OnFailure:
        """Return the policy that applies after the last attempt."""
        return (policy.then if isinstance(policy, Retry) else policy) or self.default
