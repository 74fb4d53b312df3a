# SPDX-License-Identifier: Apache-2.0
"""The Python packages that each Spark brings itself, which have to fit its jars.

Based on ``dev/make-distribution.sh`` and ``python/lib`` of Spark 4.2.0.
"""

from __future__ import annotations

from typing import Final

OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Their names, and those of their modules."""
