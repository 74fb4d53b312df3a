# SPDX-License-Identifier: Apache-2.0
"""Pickles functions by value, with the copy of cloudpickle that PySpark ships.

Spark's workers have the same copy. Modules that users register with
``pyspark.cloudpickle.register_pickle_by_value`` count, too.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pyspark import cloudpickle


def pickle_by_value(module: ModuleType) -> None:
    """Let what a module defines travel to workers, which need not be able to import it."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # as pyspark has it


def pickled_closure(value: object) -> bytes:
    """Pickle a value with functions of the main program in it."""
    content: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call] # as pyspark has it
    return content


def unpickled_closure(content: bytes) -> Any:
    """Return the value that :func:`pickled_closure` has pickled."""
    return cloudpickle.loads(content)
