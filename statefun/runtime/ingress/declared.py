# SPDX-License-Identifier: Apache-2.0
"""The ingresses of an application: the ingresses of the module files, and the ingress of replays.

A replay is a dead letter that a person sends to its function again: ``statefun dlq replay --to-target``
writes the dead letter to the replay topic that an egress declares, and the ingress of replays reads this
topic.
"""

from __future__ import annotations

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import FromEarliest, KafkaEgress, KafkaIngress, Module
from statefun.module.topic_routes import TopicRoute
from statefun.sdk.address import TypeName

REPLAYS = TypeName("statefun", "replays")
"""The id of the ingress of replays, which reads the replay topic."""


def all_ingresses(module: Module) -> tuple[KafkaIngress, ...]:
    """Return the Kafka ingresses of the module files, and the ingress of replays if it has a topic."""
    egress = module.dead_letters
    if egress is None or egress.replay_topic is None:
        return module.ingresses
    return (*module.ingresses, _replays(egress, egress.replay_topic))


def all_sources(module: Module) -> list[KafkaIngress | ConnectorIngress]:
    """Return the ingresses that are sources of Spark's query: first Kafka's, then those of connectors."""
    return [*all_ingresses(module), *module.connector_ingresses]


def _replays(egress: KafkaEgress, topic: str) -> KafkaIngress:
    """Return the ingress of replays, which reads dead letters that a person sends to their functions again.

    The command ``statefun dlq replay --to-target`` writes them to ``topic``, the replay topic of ``egress``.
    """
    return KafkaIngress(
        REPLAYS,
        egress.address,
        (TopicRoute(topic, REPLAYS, (), egress.location),),
        egress.location,
        startup_position=FromEarliest(),
        properties=egress.properties,
    )
