# SPDX-License-Identifier: Apache-2.0
"""Makes columns that Python functions compute from Arrow arrays, and converts schemas of Arrow batches.

Spark 4.0 has no ``arrow_udf``: there, pandas is between Spark and the functions. ``arrow_udf`` is documented, but the
annotations that PySpark 4.2.0 ships do not have it. ``from_arrow_schema`` and ``to_arrow_schema`` are in
``pyspark/sql/pandas/types.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from statefun.runtime.spark_internals.versions import RELEASE


def arrow_udf(function: Callable[..., pa.Array], result: DataType | str) -> Callable[..., Column]:
    """Return a function that takes columns of Spark, and returns a new column that is computed with Arrow.

    Args:
        function: computes values of the new column in Spark's workers: it takes an Arrow array for each given
            column, and returns an Arrow array.
        result: the type of the new column.
    """
    made: Callable[..., Column]
    if RELEASE >= (4, 1):
        made = cast("Any", functions).arrow_udf(function, result)
    else:
        made = _pandas_udf(function, result)
    return made


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of the rows that Arrow batches with ``schema`` become."""
    return from_arrow_schema(schema)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Arrow batches must have to become rows of ``schema``; times are in UTC."""
    if RELEASE >= (4, 2):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def _pandas_udf(function: Callable[..., pa.Array], result: DataType | str) -> Callable[..., Column]:
    import pandas as pd  # noqa: PLC0415 - Spark 4.0 alone needs it

    def compute(*columns: pd.Series[Any]) -> Any:
        array = function(*map(pa.Array.from_pandas, columns))
        if isinstance(result, StructType):
            return pa.Table.from_struct_array(array).to_pandas(types_mapper=pd.ArrowDtype)
        return array.to_pandas(types_mapper=pd.ArrowDtype)

    # Spark reads from them what kind of function it is.
    frame = pd.DataFrame if isinstance(result, StructType) else pd.Series
    compute.__annotations__ = {"columns": pd.Series, "return": frame}
    made: Callable[..., Column] = cast("Any", functions).pandas_udf(compute, result)
    return made
