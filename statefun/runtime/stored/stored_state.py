# SPDX-License-Identifier: Apache-2.0
"""Reads the state of all addresses from a checkpoint while the checkpoint's application does not run."""

from __future__ import annotations

import atexit
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it

from statefun.engine import chunks
from statefun.engine.address_keys import SEPARATOR, address_key, address_of, typename_of
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import Clock, SystemClock
from statefun.engine.delays import delayed_messages
from statefun.engine.groups import OWN_PREFIX
from statefun.engine.wheel import TIMERS_NAMESPACE as TIMERS
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.spark_location import spark_location
from statefun.runtime.spark.store_access import use_store
from statefun.runtime.spark_internals.error_texts import first_words
from statefun.runtime.spark_internals.jvm import JvmError
from statefun.runtime.spark_internals.state_reader import READS_IDS, in_session, read_states
from statefun.runtime.stored.committed_state import with_state
from statefun.runtime.stored.message_types import type_of_waiting, value_type
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError
from statefun.sdk.types import TypedValue


@contextmanager
def stored_state(session: SparkSession, checkpoint: Folder) -> Iterator[StoredState]:
    """Open the state of a checkpoint for reading.

    Raises:
        CheckpointError: if the state cannot be read.
    """
    try:
        if not READS_IDS:
            yield StoredState(_own_rows(session, checkpoint, None))
            return
        with spark_location(checkpoint) as location:
            yield StoredState(_sparks_rows(session, checkpoint, location, None))
    except (PySparkException, JvmError) as error:
        raise _unreadable(checkpoint, error) from error


def state_rows(session: SparkSession, checkpoint: Folder, batch: int) -> DataFrame:
    """Return the key and the state of each address after a micro-batch, in the columns ``target`` and ``state``.

    Raises:
        CheckpointError: if the state cannot be read.
    """
    if not READS_IDS:
        return _own_rows(session, checkpoint, batch)
    folder = ExitStack()
    atexit.register(folder.close)  # the state is read when rows are asked for
    try:
        location = folder.enter_context(spark_location(checkpoint))
        return _sparks_rows(session, checkpoint, location, batch)
    except (PySparkException, JvmError) as error:
        raise _unreadable(checkpoint, error) from error


def _sparks_rows(
    session: SparkSession, checkpoint: Folder, location: str, batch: int | None
) -> DataFrame:
    """Return the rows of :func:`state_rows` as Spark reads them; the settings of ``session`` stay as they are."""
    reading = session.newSession()
    if checkpoint.is_store:
        use_store(reading, checkpoint, "")
    return in_session(read_states(reading, location, "target", "state", batch), session)


def _own_rows(session: SparkSession, checkpoint: Folder, batch: int | None) -> DataFrame:
    """Return the rows of :func:`state_rows` for a Spark that cannot read them; this process has all in memory."""
    rows = with_state(checkpoint, batch, list)
    return session.createDataFrame(rows, "target binary, state binary")


def _unreadable(checkpoint: Folder, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"the state in checkpoint {checkpoint.shown} cannot be read: {first_words(error)}"
    )


class StoredState:
    """The state of all addresses as of the newest committed micro-batch; every method reads all of it."""

    def __init__(self, store: DataFrame) -> None:
        typename = F.substring_index(F.col("target").cast("string"), SEPARATOR.decode(), -1)
        self._rows = store.withColumn("typename", typename)

    def addresses(self) -> Counter[str]:
        """Return the number of addresses with state, by function type; statefun's own addresses do not count."""
        counted = (
            self._rows.where(~F.col("typename").startswith(OWN_PREFIX)).groupBy("typename").count()
        )
        return Counter({row["typename"]: row["count"] for row in counted.collect()})

    def __iter__(self) -> Iterator[tuple[Address, Mapping[str, TypedValue]]]:
        """Yield each address that is not statefun's own, with its values that have not expired."""
        for row in self._rows.where(~F.col("typename").startswith(OWN_PREFIX)).toLocalIterator():
            values = AddressValues(bytes(row.state))
            values.expire(SystemClock())
            yield address_of(bytes(row.target)), values.values

    def at(self, address: Address, clock: Clock) -> Mapping[str, TypedValue]:
        """Return the values of an address that have not expired, by the names of the values."""
        own = self._rows.where(F.col("target") == F.lit(address_key(address))).collect()
        values = AddressValues(bytes(own[0].state) if own else None)
        values.expire(clock)
        return values.values

    def waiting(self) -> Counter[tuple[str, str]]:
        """Return the number of messages that wait for calls, by function type of their target and type of their value.

        They wait because an endpoint is down, or because a call of their address goes on.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for row in self._rows.where(~F.col("typename").startswith(OWN_PREFIX)).toLocalIterator():
            state = _state(row)
            for message in (*state.waiting, *state.under_way.messages):
                counts[row.typename, type_of_waiting(message)] += 1
        is_chunk = F.col("typename").startswith(f"{chunks.CHUNKS_NAMESPACE}/")
        for row in self._rows.where(is_chunk).toLocalIterator():
            for value in _state(row).values:
                kept = chunks.kept_for(bytes(row.target), value.typename, value.value)
                counts.update((typename, type_of_waiting(message)) for typename, message in kept)
        return counts

    def timers(self) -> Iterator[tuple[str, str, int]]:
        """Yield each delayed message: its target's function type, its value's type, and when it is due.

        Times are in milliseconds since the epoch.
        """
        for row in self._rows.where(F.col("typename").startswith(f"{TIMERS}/")).toLocalIterator():
            for value in _state(row).values:
                for message in delayed_messages(value.typename, value.value):
                    type_ = value_type(message.typename, message.value)
                    yield typename_of(message.target), type_, message.due


def _state(row: Row) -> AddressState:
    return AddressState.FromString(bytes(row.state))
