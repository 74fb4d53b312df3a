# SPDX-License-Identifier: Apache-2.0
"""The columns of the rows that the package ``dispatch`` reads: each row is one message to one address."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

EVENT_TIME_COLUMN = "event_time"
"""The name of the column with event times."""
ROW_SCHEMA = StructType(
    [
        StructField("target", BinaryType()),
        # Functions get the rows of one target in this order. For an ingress record it is the Kafka
        # offset, which orders the records of one partition; delayed messages that are due
        # are first ordered by their timestamps.
        StructField("offset", LongType()),
        # An address key, or null for a record from an ingress.
        StructField("caller", BinaryType()),
        StructField("typename", StringType()),
        StructField("value", BinaryType()),
        # The ingress record's topic; null for messages between functions.
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        # Milliseconds since the epoch: the ingress record's time, or a delayed message's due time.
        StructField("timestamp", LongType()),
        # The ingress record's key, if the id differs from it.
        StructField("key", BinaryType()),
        # The record's headers, as JSON; null if there are none. Not a list: Spark measures an Arrow batch after
        # each row, and a column of lists as a whole each time, which took 57 % of the CPU of tasks.
        StructField("headers", StringType()),
        # Trace-context headers of the record that caused the message: lines 'name=value'.
        StructField("trace", StringType()),
        # The number of the route by which the record came; null for messages between functions.
        StructField("route", LongType()),
        # Flags, which are listed in engine.row_flags; 0 for messages between functions.
        StructField("flags", IntegerType()),
        # The event time, in milliseconds since the epoch: that of a message between functions, or a record's
        # timestamp. Null if there is none. The column is dropped if no ingress declares event time.
        StructField(EVENT_TIME_COLUMN, LongType()),
    ]
)
