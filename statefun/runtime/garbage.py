# SPDX-License-Identifier: Apache-2.0
"""Keeps Python's garbage collector from examining objects that live as long as a run."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen() -> Iterator[None]:
    """During the block, exclude the objects that exist now from garbage collection.

    They are mostly modules, some hundred thousand objects. Without this, records that wait to be
    published make the collector examine all of them again and again, for more than half of the CPU
    time of publishing. If several runs of a process overlap, the exclusion ends with the last
    run. Objects that the program itself has frozen stay frozen.
    """
    with _lock:
        is_ours = _runs[0] if _runs else not gc.get_freeze_count()
        if is_ours and not _runs:
            gc.collect()  # frozen garbage would stay as long as the run
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
"""For each run, whether statefun has frozen the objects; False if the program itself had frozen objects."""
