# SPDX-License-Identifier: Apache-2.0
"""``statefun.state()``: the state of all addresses of one function as a DataFrame, with a column for each value."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents give it

from statefun.engine.address_keys import SEPARATOR
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.shipping import own_modules
from statefun.runtime.spark_internals.arrow_functions import arrow_udf, spark_schema
from statefun.runtime.spark_internals.closures import pickle_by_value
from statefun.runtime.stored.committed_state import readable_batch
from statefun.runtime.stored.decoded_rows import UNDECODED, TypedColumns, decoded_states, row_type
from statefun.runtime.stored.known_values import KnownValues, Secrets
from statefun.runtime.stored.stored_state import state_rows
from statefun.runtime.stored.typed_values import primitive_type
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.functions import StatefulFunctions, default_functions
from statefun.sdk.types import Type

_ID = "id"
_FOUND = "array<struct<name: string, typename: string>>"


def state(  # noqa: PLR0913 - each is a choice of users
    spark: SparkSession,
    checkpoint: str | Path,
    typename: str,
    *,
    at_batch: int | None = None,
    functions: StatefulFunctions = default_functions,
    secrets: bool = False,
) -> DataFrame:
    """Return the state of all addresses of a function as a DataFrame, one row for each address with state.

    The application may run meanwhile: the rows are those of one committed micro-batch. Values that have expired
    are null.

    Args:
        spark: any session.
        checkpoint: the checkpoint of the application: a folder or its URI.
        typename: the typename of the function; it may be one for which ``namespace/*`` stands.
        at_batch: the number of the micro-batch whose state is read; the newest committed one if not given.
        functions: the functions of the application, which declare the types of their values. Without the function,
            the checkpoint has the names of the values, and says which of them are of primitive types.
        secrets: whether secret values have columns, too.

    Returns:
        The column ``id``, a column for each value, and a column ``undecoded``: a map, by name, of values that do not
        decode, that their function does not declare, or that are not exactly what their column shows, with the stored
        bytes and the reason. Values of primitive types, of Avro, of Protobuf, and of classes in JSON or MessagePack have
        columns of Spark's types; other values are bytes. If a value has the name ``id`` or ``undecoded``, its column is
        ``id_value`` or ``undecoded_value``.

    Raises:
        ConfigurationError: if there is no checkpoint, or no function of this name is known in it.
        CheckpointError: if the checkpoint is empty or cannot be read, or does not have the micro-batch.
    """
    folder = Folder.at(checkpoint)
    batch = readable_batch(folder, at_batch)
    for module in own_modules(functions):
        pickle_by_value(sys.modules[module])
    known = KnownValues.of(folder, functions if functions.find(typename) is not None else None)
    if not known.has(typename):
        raise ConfigurationError(
            f"checkpoint {folder.shown} has no function {typename}{known.hint(typename)}"
        )
    target = F.col("target").cast("string")
    suffix = SEPARATOR.decode() + known.stored_name(typename)
    rows = state_rows(spark, folder, batch).where(target.endswith(suffix))
    id_ = F.left(target, F.length(target) - F.lit(len(suffix)))
    types = known.types(typename) or _found_types(rows)
    hidden = Secrets() if secrets else known.secrets(typename)
    return typed_rows(
        rows.select(id_.alias(_ID), "state"), types, known.present_values(typename), hidden
    )


def _found_types(rows: DataFrame) -> dict[str, Type[Any] | None]:
    """Return the types of stored values by name, for a function behind an endpoint: no program declares its values."""
    found = rows.select(F.explode(arrow_udf(_names, _FOUND)("state")).alias("found"))
    types: dict[str, Type[Any] | None] = {}
    for name, typename in found.select("found.*").distinct().orderBy("name").collect():
        types[name] = None if name in types else primitive_type(typename)
    return types


def _names(states: pa.Array) -> pa.Array:
    """Return the names and typenames of the values in states, in Spark's workers."""
    values = [AddressState.FromString(state).values for state in states.to_pylist()]
    return pa.array(
        [[{"name": each.name, "typename": each.typename} for each in some] for some in values],
        pa.list_(pa.struct([("name", pa.string()), ("typename", pa.string())])),
    )


def typed_rows(
    rows: DataFrame,
    types: Mapping[str, Type[Any] | None],
    present_names: Mapping[str, str],
    secrets: Secrets,
) -> DataFrame:
    """Return a row with typed columns for each address of a function.

    Spark decodes values only if a query reads them, and only those of the ids that the query selects.

    Args:
        rows: the ids and states of the addresses, in the columns ``id`` and ``state``.
        types: the types of the function's values, by name; None for an unknown type.
        present_names: the present names of values that were renamed, by their former names.
        secrets: which values are left out.
    """
    columns: TypedColumns = {
        f"{name}_value" if name in {_ID, UNDECODED} else name: (name, type_)
        for name, type_ in types.items()
        if name not in secrets.names
    }

    def decode_all(states: pa.Array) -> pa.Array:
        return decoded_states(columns, states.to_pylist(), present_names, secrets)

    decode = arrow_udf(decode_all, spark_schema(pa.schema(list(row_type(columns)))))
    decoded = rows.select(_ID, decode("state").alias("values"))
    return decoded.select(_ID, "values.*")
