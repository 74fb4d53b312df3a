# SPDX-License-Identifier: Apache-2.0
"""Types of values that are encoded in other formats than Protobuf and JSON."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from statefun.sdk.errors import ConfigurationError


@cache
def optional_package(name: str, extra: str) -> ModuleType:
    """Import a package that not every installation has; it is looked for once.

    Args:
        name: of the package.
        extra: the extra of statefun that installs it.

    Raises:
        ConfigurationError: if it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(
            f"{name} is not installed; values in this format need it: "
            f"pip install 'statefun[{extra}]'"
        ) from None
