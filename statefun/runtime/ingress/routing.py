# SPDX-License-Identifier: Apache-2.0
"""Converts Kafka records to rows for functions, by Spark's own expressions.

Python runs here only for keys of a declared type, and those that transforms change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import BinaryType

from statefun.engine.address_keys import SEPARATOR
from statefun.engine.letters import TARGET_TYPE_HEADER, VALUE_TYPE_HEADER
from statefun.engine.origin import REPLAYED
from statefun.engine.record_keys import (
    REJECTION_NAMESPACE,
    UNDECODABLE_KEY,
    UNTRANSFORMABLE,
    id_of_key,
)
from statefun.module.topic_routes import RECORDS, TopicRoute, route_of
from statefun.runtime.ingress.transformed_ids import transformed_ids
from statefun.sdk.tracing import TRACE_HEADERS
from statefun.sdk.types import default_types


def route(records: DataFrame, routes: Sequence[TopicRoute]) -> DataFrame:
    """Make one row per record and target.

    Args:
        records: the Kafka source's columns: key, value, topic, partition, offset, timestamp
            and headers.
        routes: the routes of all topics.

    Returns:
        Rows of ``envelope.SCHEMA``.
    """
    targets = [
        F.array(*(_suffix(target.namespace, target.name) for target in route.targets))
        for route in routes
    ]
    typenames = [F.lit(_typename(route)) for route in routes]
    id_: Column = F.col("key")
    if any(route.key_type for route in routes):
        id_ = _decoded_ids(routes)(F.col("topic"), F.col("key"))
    chains = [route.chain is not None and route.chain.changes_key for route in routes]
    made = F.lit(False)
    if any(chains):
        made = F.coalesce(chosen_by_topic(routes, [*map(F.lit, chains)]), F.lit(False))
        id_ = F.when(made, transformed_ids(routes)).otherwise(id_)
    records = records.withColumn("id", id_)
    nullable = [F.lit(_takes_tombstones(route)) for route in routes]
    return _rows(
        records,
        chosen_by_topic(routes, targets),
        chosen_by_topic(routes, typenames),
        chosen_by_topic(routes, nullable) if any(map(_takes_tombstones, routes)) else F.lit(False),
        made,
    )


def _takes_tombstones(route: TopicRoute) -> bool:
    return route.deserializer is not None and route.deserializer.takes_tombstones


def _typename(route: TopicRoute) -> str:
    made = route.deserializer
    return str(route.value_type) if made is None else f"{RECORDS}{made.name}"


def route_replays(records: DataFrame) -> DataFrame:
    """Make a row of each replayed record, for the function that its headers name.

    Args:
        records: as for :func:`route`.

    Returns:
        Rows of ``envelope.SCHEMA``.
    """
    target, typename = _header(TARGET_TYPE_HEADER), _header(VALUE_TYPE_HEADER)
    # A value that a deserializer has to read goes through it again.
    is_record = _is_text(typename) & typename.cast("string").startswith(RECORDS)
    both = _is_open_typename(target) & (_is_open_typename(typename) | is_record)
    suffix = F.array(F.concat(F.lit(SEPARATOR), target))
    marked = F.concat(F.lit(REPLAYED), "topic")
    return _rows(
        records.withColumn("id", F.col("key")).withColumn("topic", marked),
        F.when(both, suffix).otherwise(_rejected("no-target")),
        F.when(both, typename.cast("string")).otherwise(""),
        F.coalesce(is_record, F.lit(False)),
        F.lit(False),
    )


def _decoded_ids(routes: Sequence[TopicRoute]) -> Callable[[Column, Column], Column]:
    """Return a function of topic and key: the id, or null if the key cannot be decoded."""
    types = {route: default_types.find(str(route.key_type)) for route in routes if route.key_type}

    def id_of(topic: str, key: bytes | None) -> bytes | None:
        route = route_of(routes, topic)
        type_ = None if route is None else types.get(route)
        if key is None or type_ is None:
            return key
        try:
            return id_of_key(bytes(key), type_)
        except Exception:  # noqa: BLE001 - the record is rejected, which looks for the reason again
            return None

    return F.udf(id_of, BinaryType(), useArrow=False)


def _is_open_typename(name: Column) -> Column:
    """Return whether bytes are a typename that the runtime does not reserve."""
    return _is_text(name) & name.cast("string").rlike("^(?!statefun[.])[^\\x00]+/[^/\\x00]+$")


def _is_text(content: Column) -> Column:
    return F.call_function("is_valid_utf8", content.cast("string"))


def _rows(
    records: DataFrame,
    targets: Column,
    typename: Column,
    takes_tombstones: Column,
    is_transformed: Column,
) -> DataFrame:
    """Make the rows of records.

    Args:
        records: as for :func:`route`, and the id of each key.
        targets: the part after the id in the keys of a record's targets, as an array.
        typename: the typename of a record's value.
        takes_tombstones: whether a record may have no value.
        is_transformed: whether the id is what transforms have made of the key.
    """
    key, value, topic, id_ = F.col("key"), F.col("value"), F.col("topic"), F.col("id")
    is_text = F.coalesce(_is_text(id_), F.lit(False))
    suffixes = (
        F.when(is_transformed & id_.isNull(), _rejected(UNTRANSFORMABLE))
        .when(~is_transformed & key.isNull(), _rejected("null-key"))
        .when(F.length(id_) == 0, _rejected("empty-key"))
        .when(~is_text, _rejected(UNDECODABLE_KEY))
        .when(value.isNull() & ~takes_tombstones, _rejected("null-value"))
        .otherwise(targets)
    )
    # Records that cannot name their address are gathered per partition, in order.
    rejected = F.encode(F.concat_ws("/", topic, F.col("partition")), "utf-8")
    is_id = is_text & F.equal_null(id_, key)
    # A key that is not told is the id, but for records that had none: see headers_of.
    nothing = F.lit(None)
    none = F.array(
        F.struct(nothing.cast("string").alias("key"), nothing.cast("binary").alias("value"))
    )
    is_keyless = is_transformed & key.isNull()
    headers = F.when(is_keyless, F.concat(F.coalesce("headers", F.array()), none)).otherwise(
        F.col("headers")
    )
    return records.select(
        F.when(is_text, id_).otherwise(rejected).alias("id"),
        F.explode(suffixes).alias("suffix"),
        "offset",
        typename.alias("typename"),
        "value",
        "topic",
        "partition",
        F.unix_millis("timestamp").alias("timestamp"),
        F.when(~is_id, key).alias("key"),
        F.when(F.size(headers) > 0, F.to_json(headers)).alias("headers"),
        _trace().alias("trace"),
    ).select(
        F.concat("id", "suffix").alias("target"),
        "offset",
        F.lit(None).cast("binary").alias("caller"),
        "typename",
        "value",
        "topic",
        "partition",
        "timestamp",
        "key",
        "headers",
        "trace",
    )


def _trace() -> Column:
    """Return the trace-context headers of records, 'name=value', a line each; null if none."""

    def is_line(header: Column) -> Column:
        text = header["value"].cast("string")
        is_text = F.call_function("is_valid_utf8", text) & ~F.contains(text, F.lit("\n"))
        return header["key"].isin(*TRACE_HEADERS) & is_text

    lines = F.transform(
        F.filter("headers", is_line),
        lambda header: F.concat(header["key"], F.lit("="), header["value"].cast("string")),
    )
    return F.when(F.size("headers") > 0, F.nullif(F.array_join(lines, "\n"), F.lit("")))


def chosen_by_topic(routes: Sequence[TopicRoute], values: Sequence[Column]) -> Column:
    """Return the item of ``values`` for the route that takes a record's topic."""
    topic = F.col("topic")
    names = [
        (F.lit(route.topic), value)
        for route, value in zip(routes, values, strict=True)
        if not route.is_pattern
    ]
    by_name = [F.try_element_at(F.create_map(*chain.from_iterable(names)), topic)] if names else []
    by_pattern = [
        F.when(topic.rlike(f"^(?:{route.topic})$"), value)
        for route, value in zip(routes, values, strict=True)
        if route.is_pattern
    ]
    return F.coalesce(*by_name, *by_pattern)


def _header(name: str) -> Column:
    """Return the value of the record's first header of that name, or null."""
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"]


def _suffix(namespace: str, name: str) -> Column:
    return F.lit(SEPARATOR + f"{namespace}/{name}".encode())


def _rejected(reason: str) -> Column:
    return F.array(_suffix(REJECTION_NAMESPACE, reason))
