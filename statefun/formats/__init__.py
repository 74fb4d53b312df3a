# SPDX-License-Identifier: Apache-2.0
"""Types of values in Avro, in Protobuf without generated classes, and with schemas in a schema registry."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from statefun.sdk.errors import ConfigurationError


@cache
def optional_package(name: str, extra: str) -> ModuleType:
    """Import a package that only an extra of statefun installs; the imported module is cached.

    Args:
        name: the name of the module to import.
        extra: the extra of statefun that installs the package.

    Raises:
        ConfigurationError: if the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(
            f"{name} is not installed; values in this format need it: "
            f"pip install 'statefun[{extra}]'"
        ) from None
