# SPDX-License-Identifier: Apache-2.0
"""Keeps Python's garbage collector away from what lives as long as a run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen() -> Iterator[None]:
    """Leave out the objects that exist now whenever the collector looks for garbage.

    They are mostly modules, some hundred thousand objects. Without this, the records that wait to be
    published make it look at all of them again and again, for more than half of the CPU time of
    publishing. Of several runs in a process, the last one ends it. What the program has frozen before
    stays frozen.
    """
    with _lock:
        is_ours = _runs[0] if _runs else not gc.get_freeze_count()
        if is_ours and not _runs:
            gc.collect()  # what is garbage now would stay for as long
            gc.freeze()
        _runs.append(is_ours)
    try:
        yield
    finally:
        with _lock:
            _runs.pop()
            if is_ours and not _runs:
                gc.unfreeze()


_lock = threading.Lock()
_runs: list[bool] = []
"""For each run, whether the objects were frozen for a run, and not by the program."""
