# SPDX-License-Identifier: Apache-2.0
"""The Python packages that are part of each distribution of Spark, since they must fit its jars.

Based on ``dev/make-distribution.sh`` and ``python/lib`` of Spark 4.2.0.
"""

from __future__ import annotations

from typing import Final

OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""The names of these packages; their top-level modules have the same names."""
