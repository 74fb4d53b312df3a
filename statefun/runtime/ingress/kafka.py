# SPDX-License-Identifier: Apache-2.0
"""A Kafka ingress as a streaming DataFrame, read by Spark's own Kafka source."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from statefun.runtime.ingress.routing import route, route_replays
from statefun.runtime.ingress.subscription import source_option
from statefun.sdk.address import TypeName
from statefun.spec.model import (
    FromEarliest,
    KafkaEgress,
    KafkaIngress,
    Module,
    OnDataLoss,
    TopicRoute,
)

_OURS = frozenset({"bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset"})
"""Set from named keys, or for group offsets, which the runtime looks up and commits itself."""

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
        # A replay that was aborted must not be read.
        properties={**egress.properties, "isolation.level": "read_committed"},
    )


def read_kafka(
    spark: SparkSession, ingress: KafkaIngress, starting_offsets: str, records_per_batch: int
) -> DataFrame:
    """Return the rows for functions that come from ``ingress``.

    Args:
        spark: the session; its class path has the Kafka connector.
        ingress: what to read.
        starting_offsets: only used by Spark when the checkpoint is fresh.
        records_per_batch: how many records one micro-batch takes at most.
    """
    options = {
        f"kafka.{name}": value for name, value in ingress.properties.items() if name not in _OURS
    }
    records = (
        spark.readStream.format("kafka")
        .options(**options)
        .option("kafka.bootstrap.servers", ingress.address)
        .option(*source_option(ingress))
        .option("startingOffsets", starting_offsets)
        .option("maxOffsetsPerTrigger", records_per_batch)
        .option("failOnDataLoss", ingress.on_data_loss is OnDataLoss.FAIL)
        .option("includeHeaders", "true")
        .load()
    )
    return route_replays(records) if ingress.id == REPLAYS else route(records, ingress.topics)
