# SPDX-License-Identifier: Apache-2.0
"""Keeps Python's garbage collector away from what lives as long as a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen() -> Iterator[None]:
    """Leave out the objects that exist now whenever the collector looks for garbage.

    They are mostly modules, some hundred thousand objects. Without this, the records that wait to be
    published make it look at all of them again and again, for more than half of the CPU time of
    publishing.
    """
    if gc.get_freeze_count():  # by the program
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
