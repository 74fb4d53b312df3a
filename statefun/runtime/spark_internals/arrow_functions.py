# SPDX-License-Identifier: Apache-2.0
"""Columns that functions of a program compute from Arrow arrays.

``arrow_udf`` is documented, but the annotations that PySpark 4.2.0 ships do not have it. ``from_arrow_schema`` is in
``pyspark/sql/pandas/types.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def arrow_udf(
    function: Callable[[pa.Array], pa.Array], result: StructType | str
) -> Callable[[str], Column]:
    """Return a function that makes a column of another column, given its name.

    Args:
        function: computes an array of the new column from one of the other column, in Spark's workers.
        result: the type of the new column.
    """
    made: Callable[[str], Column] = cast("Any", functions).arrow_udf(function, result)
    return made


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of the rows that Arrow batches with ``schema`` become."""
    return from_arrow_schema(schema)
