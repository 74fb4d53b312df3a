# SPDX-License-Identifier: Apache-2.0
"""The ingresses that an application has: those that are declared, and one of its own."""

from __future__ import annotations

from statefun.module.model import FromEarliest, KafkaEgress, KafkaIngress, Module, TopicRoute
from statefun.sdk.address import TypeName

REPLAYS = TypeName("statefun", "replays")
"""The id of the ingress of dead letters that come back."""


def all_ingresses(module: Module) -> tuple[KafkaIngress, ...]:
    """Return the declared ingresses, and the one of replays where a topic for them is declared."""
    egress = module.dead_letters
    if egress is None or egress.replay_topic is None:
        return module.ingresses
    return (*module.ingresses, _replays(egress, egress.replay_topic))


def _replays(egress: KafkaEgress, topic: str) -> KafkaIngress:
    """Return the ingress of what is replayed to ``egress``'s side."""
    return KafkaIngress(
        REPLAYS,
        egress.address,
        (TopicRoute(topic, REPLAYS, (), egress.location),),
        egress.location,
        startup_position=FromEarliest(),
        properties=egress.properties,
    )
