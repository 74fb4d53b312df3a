# SPDX-License-Identifier: Apache-2.0
"""The releases of Spark on which statefun runs.

The other modules of this package are tested with these releases, and ask :data:`RELEASE` where releases differ. A
later release may work, too: statefun checks all data from Spark, and with a later release it calls functions
through pandas frames, not with Arrow batches.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any

from statefun.sdk.errors import PlatformError

_OLDEST, _NEWEST = (4, 0), (4, 2)
_INSTALL = "pyspark==4.2.0"


def _installed() -> str:
    """Return the version of PySpark; commands that need nothing else of PySpark do not wait for its import."""
    if "pyspark" not in sys.modules:
        spec: Any = find_spec("pyspark")
        if spec is not None and hasattr(spec.loader, "get_data"):
            content = spec.loader.get_data(
                str(PurePath(spec.origin).with_name("version.py"))
            ).decode()
            found = re.search(r"""^__version__.*=.*["'](.+)["']""", content, re.MULTILINE)
            if found:
                return found[1]
    from pyspark import __version__  # noqa: PLC0415 - it is imported already, or has another form

    return __version__


VERSION = _installed()
"""The version of the installed PySpark."""


def check_release(version: str = VERSION) -> None:
    """Check that a release of PySpark is not too old.

    Raises:
        PlatformError: if the release is too old.
    """
    if _line(version) < _OLDEST:
        raise PlatformError(
            f"PySpark {version} is too old: statefun needs Spark 4.0 or newer; run: pip install "
            f"'{_INSTALL}', and submit to a cluster of Spark 4.2"
        )


def is_tested(version: str = VERSION) -> bool:
    """Return whether the details in this package were tested with a release of PySpark.

    >>> is_tested("4.0.3"), is_tested("4.2.1"), is_tested("4.20.0"), is_tested("4.3.0")
    (True, True, False, False)
    """
    return _OLDEST <= _line(version) <= _NEWEST


def _line(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as 4 and 2."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


RELEASE = _line(VERSION)
"""The first two numbers of the installed release of PySpark."""


def check_writes_states() -> None:
    """Check that the installed release can write states outside of a query, as rescaling does.

    Raises:
        PlatformError: if it cannot.
    """
    if RELEASE < (4, 2):
        raise PlatformError(
            f"PySpark {VERSION} cannot write states outside of a query: do this with PySpark 4.2, which "
            "reads and writes the same checkpoints"
        )
