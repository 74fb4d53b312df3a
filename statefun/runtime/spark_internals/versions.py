# SPDX-License-Identifier: Apache-2.0
"""Which releases of Spark the details of this package are tested with."""

from __future__ import annotations

import pyspark

_TESTED = "4.2"


def is_tested(version: str = pyspark.__version__) -> bool:
    """Tell whether a release is one of those.

    >>> is_tested("4.2.1"), is_tested("4.20.0"), is_tested("4.3.0")
    (True, False, False)
    """
    return version.startswith(f"{_TESTED}.")
