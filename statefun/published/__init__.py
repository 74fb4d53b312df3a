# SPDX-License-Identifier: Apache-2.0
"""The module names of the published package, apache-flink-statefun, for programs that use them.

Python finds them as ``statefun.core`` and so on, since this folder is on the path of ``statefun``.
Nothing of ours imports them, and each says where its names are now.
"""

from __future__ import annotations

import warnings


def moved(module: str, now: str = "statefun") -> None:
    """Warn whoever imports a module that its names are in another one now."""
    warnings.warn(
        f"{module} is a module of apache-flink-statefun; import its names from {now}",
        DeprecationWarning,
        stacklevel=3,
    )
