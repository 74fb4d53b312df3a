# SPDX-License-Identifier: Apache-2.0
"""Plans the part of the query that groups rows by address and calls functions with them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it
from pyspark.sql.streaming.state import GroupStateTimeout

from statefun.engine.address_keys import SEPARATOR
from statefun.runtime.dispatch.operator import OUTCOME, Operator
from statefun.runtime.rows.envelope import EVENT_TIME_COLUMN


def dispatch(
    rows: DataFrame,
    operator: Operator,
    stored_names: Mapping[str, str],
    *,
    has_event_times: bool = False,
) -> DataFrame:
    """Apply ``operator`` to rows, grouped by target address.

    Args:
        rows: rows of ``envelope.ROW_SCHEMA``.
        operator: calls the functions.
        stored_names: the stored names of renamed functions, by each of their other names; targets get them.
        has_event_times: whether an ingress declares event time, so that rows keep their event times.

    Returns:
        One column ``outcome`` of serialized ``Outcome`` messages.
    """
    # The due time of a delayed message; null, which sorts first, for other rows.
    due = F.when(F.col("topic").isNull(), F.col("timestamp"))
    if not has_event_times:
        rows = rows.drop(EVENT_TIME_COLUMN)
    if stored_names:
        rows = rows.withColumn("target", _stored_target(F.col("target"), stored_names))
    return (
        rows.repartition("target")
        # Spark needs rows sorted by target, and uses this sort for that. The other columns keep each
        # address's messages in order, which shuffles, merges and spills do not: delayed messages
        # come last, ordered by their due time.
        .sortWithinPartitions("target", due, "offset")
        .groupBy("target")
        .applyInPandasWithState(
            operator.__call__,
            outputStructType=f"{OUTCOME} binary",
            stateStructType="state binary",
            outputMode="append",
            timeoutConf=GroupStateTimeout.NoTimeout,
        )
    )


def _stored_target(target: Column, stored_names: Mapping[str, str]) -> Column:
    """Return the column of target keys, in which stored names replace the other names of functions."""
    stored = target
    for name, stored_name in stored_names.items():
        suffix = SEPARATOR + name.encode()
        id_ = F.substr(target, F.lit(1), F.length(target) - F.lit(len(suffix)))
        key = F.concat(id_, F.lit(SEPARATOR + stored_name.encode()))
        stored = F.when(F.endswith(target, F.lit(suffix)), key).otherwise(stored)
    return stored
