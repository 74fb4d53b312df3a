# SPDX-License-Identifier: Apache-2.0
"""Plans the part of the query that groups rows by address and calls functions with them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it
from pyspark.sql.streaming.state import GroupStateTimeout

from statefun.runtime.dispatch.operator import OUTCOME, Operator


def dispatch(rows: DataFrame, operator: Operator) -> DataFrame:
    """Apply ``operator`` to ``rows`` (of ``envelope.ROW_SCHEMA``), grouped by target address.

    Returns:
        One column ``outcome`` of serialized ``Outcome`` messages.
    """
    # The due time of a delayed message; null, which sorts first, for other rows.
    due = F.when(F.col("topic").isNull(), F.col("timestamp"))
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
