# SPDX-License-Identifier: Apache-2.0
"""Reading the state that a checkpoint holds, while its application does not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it

from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.dispatch.timers import delayed_messages
from statefun.runtime.envelope import SEPARATOR, address_of, typename_of
from statefun.runtime.filesystem import Folder
from statefun.runtime.timers import NAMESPACE as TIMERS

OWN = "statefun."
"""What the namespaces begin with whose state is the runtime's own."""


class StoredState:
    """The state as of the newest committed micro-batch.

    Every method reads all of it, and raises PySparkException if it cannot be read.
    """

    def __init__(self, session: SparkSession, checkpoint: Folder) -> None:
        # Spark's reader asks the coordinator of stores, which the first query of a process makes.
        _ = session.streams
        store = session.read.format("statestore").load(checkpoint.location)
        typename = F.substring_index(F.col("key.target").cast("string"), SEPARATOR.decode(), -1)
        self._rows: DataFrame = store.select(
            F.col("key.target"), F.col("value.groupState.state"), typename.alias("typename")
        )

    def addresses(self) -> Counter[str]:
        """Return how many addresses of each of the users' function types keep anything."""
        counted = self._rows.where(~F.col("typename").startswith(OWN)).groupBy("typename").count()
        return Counter({row["typename"]: row["count"] for row in counted.collect()})

    def values(self) -> Counter[tuple[str, str, str]]:
        """Return how many addresses keep each value: function type, its name and its typename."""
        stored: Counter[tuple[str, str, str]] = Counter()
        for row in self._rows.where(~F.col("typename").startswith(OWN)).toLocalIterator():
            for value in _state(row).values:
                stored[address_of(bytes(row.target)).typename, value.name, value.typename] += 1
        return stored

    def timers(self) -> Counter[str]:
        """Return how many delayed messages are pending, by the function type they are for."""
        return Counter(self._timers())

    def _timers(self) -> Iterator[str]:
        for row in self._rows.where(F.col("typename").startswith(f"{TIMERS}/")).toLocalIterator():
            for value in _state(row).values:
                for message in delayed_messages(value.typename, value.value):
                    yield typename_of(message.target)


def _state(row: Row) -> AddressState:
    return AddressState.FromString(bytes(row.state))
