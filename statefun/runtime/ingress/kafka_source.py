# SPDX-License-Identifier: Apache-2.0
"""Reads a Kafka ingress with Spark's own Kafka source, as a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from statefun.module.model import KafkaIngress, OnDataLoss
from statefun.runtime.ingress.declared import REPLAYS
from statefun.runtime.ingress.routing import route, route_replays
from statefun.runtime.ingress.starting_offsets import ISOLATION
from statefun.runtime.ingress.stopping import Offsets, is_before
from statefun.runtime.ingress.subscription import source_option

_OURS = frozenset({"bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset"})
"""Kafka properties that statefun sets itself; the values that an ingress has for them are ignored."""
_FETCHING = {"max.poll.records": "10000", "fetch.max.wait.ms": "10"}
"""The properties of a task's consumer for fetching records; properties of the ingress take precedence.

After each poll, Spark's reader asks where the partition begins and ends. A broker answers the requests of a
connection in order: if a fetch waits for records at the end of the partition, the answer to this question
waits, too. With Kafka's defaults, this takes up to half a second for every 500 records."""


def consumer_properties(ingress: KafkaIngress) -> Mapping[str, str]:
    """Return the properties of the consumers that read ``ingress``; properties of the ingress take precedence.

    An ingress that sets ``fetch.min.bytes`` should also set ``fetch.max.wait.ms``; otherwise, Kafka's
    default for ``fetch.max.wait.ms`` applies.
    """
    fetching = {} if "fetch.min.bytes" in ingress.properties else _FETCHING
    properties = {**ISOLATION, **fetching, **ingress.properties}
    return {name: value for name, value in properties.items() if name not in _OURS}


def read_kafka(
    spark: SparkSession,
    ingress: KafkaIngress,
    starting_offsets: str,
    stops: Offsets | None,
    records_per_batch: int,
) -> DataFrame:
    """Read the records of a Kafka ingress, and return a row for each record and target.

    Args:
        spark: the session; its class path must have the Kafka connector.
        ingress: the ingress to read.
        starting_offsets: the offsets at which Spark begins on a fresh checkpoint; otherwise it ignores them.
        stops: the offsets before which reading stops; None to read for ever.
        records_per_batch: the largest number of records that one micro-batch reads.
    """
    properties = consumer_properties(ingress)
    options = {f"kafka.{name}": value for name, value in properties.items()}
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
    if stops is not None:
        records = records.where(is_before(stops))
    if ingress.id == REPLAYS:
        return route_replays(records)
    has_event_time = ingress.event_time is not None
    return route(records, ingress.id, ingress.topics, has_event_time=has_event_time)
