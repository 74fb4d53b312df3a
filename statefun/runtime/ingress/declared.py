# SPDX-License-Identifier: Apache-2.0
"""The ingresses of an application: the ingresses of the module files, and the ingress of replays.

Replays are dead letters that a person sends through the application again.
"""

from __future__ import annotations

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import FromEarliest, KafkaEgress, KafkaIngress, Module
from statefun.module.topic_routes import TopicRoute
from statefun.sdk.address import TypeName

REPLAYS = TypeName("statefun", "replays")
"""The id of the ingress that reads dead letters again which a person has replayed."""


def all_ingresses(module: Module) -> tuple[KafkaIngress, ...]:
    """Return the Kafka ingresses of the module files, and the ingress of replays if its topic is declared."""
    egress = module.dead_letters
    if egress is None or egress.replay_topic is None:
        return module.ingresses
    return (*module.ingresses, _replays(egress, egress.replay_topic))


def all_sources(module: Module) -> list[KafkaIngress | ConnectorIngress]:
    """Return all ingresses that are sources of the query, Kafka's ingresses first."""
    return [*all_ingresses(module), *module.connector_ingresses]


def _replays(egress: KafkaEgress, topic: str) -> KafkaIngress:
    """Return the ingress that reads the replay topic of ``egress``."""
    return KafkaIngress(
        REPLAYS,
        egress.address,
        (TopicRoute(topic, REPLAYS, (), egress.location),),
        egress.location,
        startup_position=FromEarliest(),
        properties=egress.properties,
    )
