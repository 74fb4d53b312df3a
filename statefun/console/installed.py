# SPDX-License-Identifier: Apache-2.0
"""Finds the installed versions that a person adds to a problem report."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from os import environ
from pathlib import Path
from typing import Final

_PATIENCE: Final = timedelta(seconds=10)


def versions(*, is_compiled: bool) -> str:
    """Return the versions of statefun, Python, PySpark and Java, one in each line."""
    form = "compiled" if is_compiled else "not compiled"
    return (
        f"statefun {version('statefun')} ({form})\n"
        f"Python {platform.python_version()}\n"
        f"PySpark {_pyspark()}\n"
        f"Java {_java()}"
    )


def _pyspark() -> str:
    try:
        return version("pyspark")
    except (
        PackageNotFoundError
    ):  # Spark's own distribution has a PySpark that no package manager knows
        return "of a distribution of Spark" if environ.get("SPARK_HOME") else "is missing"


def _java() -> str:
    """Return the version of the Java that Spark uses, and its path."""
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        return f"is missing in {home}/bin, where JAVA_HOME points" if home else "is missing"
    try:
        done = subprocess.run(
            [java, "-version"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=_PATIENCE.total_seconds(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be started: {error}"
    found = re.search(r'version "([^"]+)"', done.stderr)
    return f"{found[1] if found else 'of an unknown version'} ({java})"
