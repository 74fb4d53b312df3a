# SPDX-License-Identifier: Apache-2.0
"""Futures of what is done at once."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def finished(result: T) -> Future[T]:
    """Return a future that is done."""
    future = Future[T]()
    future.set_result(result)
    return future
