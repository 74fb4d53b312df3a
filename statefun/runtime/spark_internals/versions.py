# SPDX-License-Identifier: Apache-2.0
"""The releases of Spark that statefun runs on.

The other modules of this package fit the tested releases. A later release may run, too: all data
from Spark is checked, and functions are called through pandas.
"""

from __future__ import annotations

import re

import pyspark

from statefun.sdk.errors import PlatformError

_TESTED = (4, 2)
_INSTALL = "pyspark==4.2.0"


def check_release(version: str = pyspark.__version__) -> None:
    """Check that a release is not too old.

    Raises:
        PlatformError: if it is too old.
    """
    if _line(version) < _TESTED:
        raise PlatformError(
            f"PySpark {version} is too old: statefun runs on Spark 4.2; run: pip install "
            f"'{_INSTALL}', and submit to a cluster of Spark 4.2"
        )


def is_tested(version: str = pyspark.__version__) -> bool:
    """Return whether the details of this package are tested with a release.

    >>> is_tested("4.2.1"), is_tested("4.20.0"), is_tested("4.3.0")
    (True, False, False)
    """
    return _line(version) == _TESTED


def _line(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
