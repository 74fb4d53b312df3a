# SPDX-License-Identifier: Apache-2.0
"""Of which types are the objects of a process, and of which types are there more later on?

Python allocates a block for nearly each object. The count of blocks shows that something is kept, and this census shows
what, among the objects that the garbage collector knows: numbers and strings are not among them.
"""

from __future__ import annotations

import gc
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

TYPES = "types.jsonl"
_FEW = 50
"""Types with fewer objects are left out."""
_SHARE = 8
"""Medians are taken of this part of all samples: of the first after the warm-up, and of the last."""


def census() -> dict[str, int]:
    """Return the number of objects of each type.

    >>> census()["builtins.dict"] > 100
    True
    """
    # No other thread may run meanwhile: it cannot complete a tuple to which a list of all objects refers, and gets a
    # SystemError. So a function written in C makes the list when it asks for the first object, and exhausts it.
    objects = chain.from_iterable(map(gc.get_objects, (None,)))
    gc.disable()  # it may run finalizers, and so another thread
    try:
        counts = Counter(map(type, objects))
    finally:
        gc.enable()
    return {
        f"{kind.__module__}.{kind.__qualname__}": count
        for kind, count in counts.items()
        if count >= _FEW
    }


def write_census(folder: Path, batch: int) -> None:
    """Write down the census of this process, as of a micro-batch."""
    with (folder / TYPES).open("a") as file:
        file.write(f"{json.dumps({'batch': batch, 'types': census()})}\n")


def changed(folder: Path, warm_up: float) -> Sequence[tuple[float, str]]:
    """Return by how much the number of each type's objects has changed, the largest growth first.

    Args:
        folder: has the censuses.
        warm_up: this share of a run counts for nothing.
    """
    path = folder / TYPES
    lines = path.read_text().splitlines() if path.exists() else []
    samples = [json.loads(line) for line in lines]
    warm = [each["types"] for each in samples if each["batch"] >= warm_up * samples[-1]["batch"]]
    count = len(warm) // _SHARE
    if not count:
        return ()
    first, last = warm[:count], warm[-count:]
    names = {name for each in first + last for name in each}
    found = [
        (
            statistics.median(each.get(name, 0) for each in last)
            - statistics.median(each.get(name, 0) for each in first),
            name,
        )
        for name in names
    ]
    return sorted((each for each in found if each[0]), reverse=True)
