# SPDX-License-Identifier: Apache-2.0
"""Of which types are the objects of a process, and of which types are there more later on?

Python allocates a block for nearly each object. The count of blocks shows that something is kept, and this census shows
what: the objects that the garbage collector knows, and the items of its lists, dictionaries, sets and tuples, which
stand for the numbers and strings that it does not know.
"""

from __future__ import annotations

import gc
import json
import statistics
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

TYPES = "types.jsonl"
_COLLECTIONS = (dict, list, set, tuple, deque)
_FEW = 50
"""Types with fewer objects are left out."""
_SHARE = 8
"""Medians are taken of this part of all samples: of the first after the warm-up, and of the last."""


def census() -> dict[str, int]:
    """Return the number of objects of each type, and of items in collections of each type.

    >>> counted = census()
    >>> counted["builtins.dict"] > 100, counted["items of dict"] > counted["builtins.dict"]
    (True, True)
    """
    objects = gc.get_objects()
    counts = Counter(map(type, objects))
    found = {
        f"{kind.__module__}.{kind.__qualname__}": count
        for kind, count in counts.items()
        if count >= _FEW
    }
    for collection in _COLLECTIONS:
        items = sum(len(each) for each in objects if type(each) is collection)
        found[f"items of {collection.__name__}"] = items
    return found


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
