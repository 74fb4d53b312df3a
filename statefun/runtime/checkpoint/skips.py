# SPDX-License-Identifier: Apache-2.0
"""The numbers of egress records in the outbox that must not be published, since a person has skipped them.

The command ``statefun outbox`` writes them into a file ``<checkpoint>/outbox/<batch>/skipped`` next to the
batch's manifest. The manifest does not change: markers in clusters identify the batch by the manifest's
digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, groupby

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

Skips = Mapping[str, frozenset[int]]
"""The numbers of skipped records, by the id of their egress."""


def read_skips(checkpoint: Folder, batch: int) -> Skips:
    """Return the numbers of the skipped records of a batch, by egress.

    Raises:
        CheckpointError: if the file with the numbers is damaged.
    """
    try:
        content = read_framed(checkpoint, _path(batch))
    except FileNotFoundError:
        return {}
    try:
        return {
            str(egress): frozenset(n for first, end in ranges for n in range(first, end))
            for egress, ranges in json.loads(content).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(checkpoint, _path(batch), error) from error


def write_skips(checkpoint: Folder, batch: int, skips: Skips) -> None:
    """Write the numbers of a batch's skipped records to the disk; they replace the numbers of earlier calls."""
    content = {egress: list(_ranges(sorted(numbers))) for egress, numbers in skips.items()}
    write_framed(checkpoint, _path(batch), json.dumps(content).encode())


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group sorted numbers in ranges without gaps: the first number of each range, and its last number plus 1.

    >>> list(_ranges([1, 2, 3, 7]))
    [(1, 4), (7, 8)]
    """
    steps = count()
    for _, group in groupby(numbers, key=lambda number: number - next(steps)):
        together = list(group)
        yield together[0], together[-1] + 1


def _path(batch: int) -> str:
    return f"outbox/{batch}/skipped"
