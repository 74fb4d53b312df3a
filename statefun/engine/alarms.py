# SPDX-License-Identifier: Apache-2.0
"""Installs the timer for functions' timeouts once for all calls of a task.

mypyc must not compile this module: if the caller of a compiled generator stops before the end of the generator, the
generator's ``with`` block is not left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from statefun.sdk.deadline import standby

_Item = TypeVar("_Item")


def on_standby(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the items of an iterator that makes calls, with the timer installed until the end.

    The former timer and signal handler are restored after the last item, or when the caller stops before it.
    """
    with standby():
        yield from items
