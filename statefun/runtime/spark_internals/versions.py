# SPDX-License-Identifier: Apache-2.0
"""The releases of Spark on which statefun runs.

The other modules of this package are tested with these releases, and ask :data:`RELEASE` where releases differ. A
later release may work, too: statefun checks all data from Spark, and with a later release it calls functions
through pandas frames, not with Arrow batches.
"""

from __future__ import annotations

import re

import pyspark

from statefun.sdk.errors import PlatformError

_OLDEST, _NEWEST = (4, 0), (4, 2)
_INSTALL = "pyspark==4.2.0"


def check_release(version: str = pyspark.__version__) -> None:
    """Check that a release of PySpark is not too old.

    Raises:
        PlatformError: if the release is too old.
    """
    if _line(version) < _OLDEST:
        raise PlatformError(
            f"PySpark {version} is too old: statefun needs Spark 4.0 or newer; run: pip install "
            f"'{_INSTALL}', and submit to a cluster of Spark 4.2"
        )


def is_tested(version: str = pyspark.__version__) -> bool:
    """Return whether the details in this package were tested with a release of PySpark.

    >>> is_tested("4.0.3"), is_tested("4.2.1"), is_tested("4.20.0"), is_tested("4.3.0")
    (True, True, False, False)
    """
    return _OLDEST <= _line(version) <= _NEWEST


def _line(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as 4 and 2."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


RELEASE = _line(pyspark.__version__)
"""The first two numbers of the installed release of PySpark."""


def check_writes_states() -> None:
    """Check that the installed release can write states outside of a query, as rescaling does.

    Raises:
        PlatformError: if it cannot.
    """
    if RELEASE < (4, 2):
        raise PlatformError(
            f"PySpark {pyspark.__version__} cannot write states outside of a query: do this with PySpark 4.2, which "
            "reads and writes the same checkpoints"
        )
