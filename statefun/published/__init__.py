# SPDX-License-Identifier: Apache-2.0
"""Modules with the same names as in the published package, apache-flink-statefun, for programs that import them.

Python finds them as ``statefun.core`` and so on, since this folder is on the path of ``statefun``.
No module of this project imports them. Each module warns its importer, and says where the names are now.
"""

from __future__ import annotations

import inspect
import warnings

_IMPORTERS = ("statefun", "importlib", "_frozen_importlib", "_pytest.")
"""Prefixes of module names; the importer is the first stack frame of a module without such a prefix."""


def warn_of_move(module: str, now: str = "statefun") -> None:
    """Warn the importer of ``module``, a module of apache-flink-statefun, to import its names from ``now`` instead."""
    text = f"{module} is a module of apache-flink-statefun; import its names from {now}"
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_IMPORTERS):
        frame = frame.f_back
    if frame is not None:
        name = frame.f_globals.get("__name__")
        warnings.warn_explicit(
            text, DeprecationWarning, frame.f_code.co_filename, frame.f_lineno, name
        )
