# SPDX-License-Identifier: Apache-2.0
"""Converts records to rows for functions, with Spark's own expressions.

Python code runs here only for keys that have a declared type, and for keys that transforms change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import BinaryType

from statefun.engine.address_keys import SEPARATOR
from statefun.engine.letters import (
    ENCODED_HEADER,
    EVENT_TIME_HEADER,
    TARGET_TYPE_HEADER,
    VALUE_TYPE_HEADER,
)
from statefun.engine.record_keys import (
    REJECTION_NAMESPACE,
    UNDECODABLE_KEY,
    UNTRANSFORMABLE,
    id_of_key,
)
from statefun.engine.record_routes import route_number
from statefun.engine.row_flags import ENCODED, KEYLESS, REPLAYED
from statefun.module.topic_routes import TopicRoute
from statefun.runtime.ingress.transformed_ids import transformed_ids
from statefun.runtime.rows.envelope import EVENT_TIME_COLUMN
from statefun.sdk.address import TypeName
from statefun.sdk.tracing import TRACE_HEADERS
from statefun.sdk.types import default_types


def route(
    records: DataFrame,
    ingress: TypeName,
    routes: Sequence[TopicRoute],
    *,
    has_event_time: bool = False,
) -> DataFrame:
    """Make one row for each record and target.

    Args:
        records: the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp
            and headers.
        ingress: the id of the ingress that reads the records.
        routes: the routes of all topics of the ingress.
        has_event_time: whether the records have event times, which are then their timestamps.

    Returns:
        Rows of ``envelope.ROW_SCHEMA``.
    """
    numbered = {route_number(ingress, each): each for each in routes}
    handling = chosen_by_topic(
        routes, [_handling(number, each) for number, each in numbered.items()]
    )
    records = records.withColumn("handling", handling)
    number = F.col("handling")["number"]
    id_: Column = F.col("key")
    if any(each.key_type for each in routes):
        id_ = _decoded_ids(numbered)(number, F.col("key"))
    if any(each.changes_key for each in routes):
        is_made = F.coalesce(F.col("handling")["changes_key"], F.lit(False))
        id_ = F.when(is_made, transformed_ids(numbered, number)).otherwise(id_)
    event_time = F.unix_millis("timestamp") if has_event_time else F.lit(None).cast("bigint")
    return _rows(records.withColumn("id", id_), event_time)


def _handling(number: int, route: TopicRoute) -> Column:
    """Return a Spark struct column that says how to make rows of a route's records.

    The fields are the number, the targets and the typename of values of the route, whether functions
    receive records without value (tombstones), whether its transforms change keys, and the flags of the rows.
    """
    deserializer = route.deserializer
    return F.struct(
        F.lit(number).cast("bigint").alias("number"),
        F.array(*(_suffix(target.namespace, target.name) for target in route.targets)).alias(
            "targets"
        ),
        F.lit(str(route.value_type)).alias("typename"),
        F.lit(route.takes_tombstones).alias("takes_tombstones"),
        F.lit(route.changes_key).alias("changes_key"),
        F.lit(0 if deserializer is None else ENCODED).alias("flags"),
    )


def route_replays(records: DataFrame) -> DataFrame:
    """Make one row for each replayed dead letter; its headers name the target.

    Args:
        records: as for :func:`route`.

    Returns:
        Rows of ``envelope.ROW_SCHEMA``.
    """
    target, typename = _header(TARGET_TYPE_HEADER), _header(VALUE_TYPE_HEADER)
    # Such a value is a record's: the deserializer of the record's route has to read it again.
    is_encoded = _header(ENCODED_HEADER).isNotNull()
    has_typenames = _is_open_typename(target) & _is_open_typename(typename)
    suffix = F.array(F.concat(F.lit(SEPARATOR), target))
    handling = F.struct(
        F.lit(0)
        .cast("bigint")
        .alias("number"),  # the record's headers have the number of the route of its first origin
        F.when(has_typenames, suffix).otherwise(_rejected("no-target")).alias("targets"),
        F.when(has_typenames, typename.cast("string")).otherwise("").alias("typename"),
        is_encoded.alias("takes_tombstones"),
        F.lit(False).alias("changes_key"),
        F.when(is_encoded, REPLAYED | ENCODED).otherwise(REPLAYED).alias("flags"),
    )
    event_time = _header(EVENT_TIME_HEADER).cast("string").try_cast("bigint")
    return _rows(
        records.withColumn("id", F.col("key")).withColumn("handling", handling), event_time
    )


def _decoded_ids(routes: Mapping[int, TopicRoute]) -> Callable[[Column, Column], Column]:
    """Return a Spark function that decodes a record's key to an id with the key type of its route.

    The function takes the route's number and the key. It returns null if the key cannot be decoded.
    """
    types = {
        number: default_types.find(str(route.key_type))
        for number, route in routes.items()
        if route.key_type
    }

    def id_of(number: int | None, key: bytes | None) -> bytes | None:
        type_ = None if number is None else types.get(number)
        if key is None or type_ is None:
            return key
        try:
            return id_of_key(bytes(key), type_)
        except Exception:  # noqa: BLE001 - the rejection decodes the key again, for the reason
            return None

    return F.udf(id_of, BinaryType(), useArrow=False)


def _is_open_typename(name: Column) -> Column:
    """Return a condition: whether bytes are a typename that statefun does not reserve for itself."""
    return _is_text(name) & name.cast("string").rlike("^(?!statefun[.])[^\\x00]+/[^/\\x00]+$")


def _is_text(content: Column) -> Column:
    return F.call_function("is_valid_utf8", content.cast("string"))


def _rows(records: DataFrame, event_time: Column) -> DataFrame:
    """Make one row for each record and target, from records whose id and handling are known.

    Args:
        records: as for :func:`route`, with the columns ``id`` and ``handling`` (see ``_handling``).
        event_time: the event times, in milliseconds since the epoch.
    """
    key, value, topic, id_, handling = (
        F.col(name) for name in ("key", "value", "topic", "id", "handling")
    )
    is_text = F.coalesce(_is_text(id_), F.lit(False))
    is_keyless = handling["changes_key"] & key.isNull()
    suffixes = (
        F.when(handling["changes_key"] & id_.isNull(), _rejected(UNTRANSFORMABLE))
        .when(~handling["changes_key"] & key.isNull(), _rejected("null-key"))
        .when(F.length(id_) == 0, _rejected("empty-key"))
        .when(~is_text, _rejected(UNDECODABLE_KEY))
        .when(value.isNull() & ~handling["takes_tombstones"], _rejected("null-value"))
        .otherwise(handling["targets"])
    )
    # A record without a valid id is rejected at an address of its partition, in order.
    rejected = F.encode(F.concat_ws("/", topic, F.col("partition")), "utf-8")
    is_id = is_text & F.equal_null(id_, key)
    return records.select(
        F.when(is_text, id_).otherwise(rejected).alias("id"),
        F.explode(suffixes).alias("suffix"),
        "offset",
        handling["typename"].alias("typename"),
        "value",
        "topic",
        "partition",
        F.unix_millis("timestamp").alias("timestamp"),
        F.when(~is_id, key).alias("key"),
        F.when(F.size("headers") > 0, F.to_json("headers")).alias("headers"),
        _trace().alias("trace"),
        handling["number"].alias("route"),
        F.when(is_keyless, handling["flags"].bitwiseOR(F.lit(KEYLESS)))
        .otherwise(handling["flags"])
        .alias("flags"),
        event_time.alias(EVENT_TIME_COLUMN),
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
        "route",
        "flags",
        EVENT_TIME_COLUMN,
    )


def _trace() -> Column:
    """Return a record's headers that carry trace context, as lines ``name=value``; null if there are none."""

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
    """Return the item of ``values`` (one for each route) that belongs to the route of a record's topic."""
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
    """Return the value of a record's first header with this name; null if it has none."""
    headers = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(headers, F.lit(1))["value"]


def _suffix(namespace: str, name: str) -> Column:
    return F.lit(SEPARATOR + f"{namespace}/{name}".encode())


def _rejected(reason: str) -> Column:
    return F.array(_suffix(REJECTION_NAMESPACE, reason))
