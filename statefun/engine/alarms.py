# SPDX-License-Identifier: Apache-2.0
"""Installs the timer for functions' timeouts once for all calls of a task.

This module is not compiled: Python ends the ``with`` block of a generator that was given up only if the generator is
Python code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from statefun.sdk.deadline import standby

_Item = TypeVar("_Item")


def on_standby(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the items of an iterator that makes calls, with the timer installed until the end.

    The former timer and signal handler are restored when the items end or are given up.
    """
    with standby():
        yield from items
