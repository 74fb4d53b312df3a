# SPDX-License-Identifier: Apache-2.0
"""Prints tables on a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence

from statefun.sdk.shortening import shortened

_GAP = "  "
_NARROWEST = 12
"""The smallest width of a column, in characters, however narrow the terminal is."""


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print the lines of :func:`table_lines`."""
    for line in table_lines(rows):
        print(line)


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows in columns as wide as their content; the first row has the names of the columns.

    On a terminal that is too narrow for all columns, the cells of the widest columns are cut.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sys.stdout.isatty():
        widths = fitted(widths, terminal_size().columns)
    for row in rows:
        cells = (
            f"{shortened(cell, width):<{width}}" for cell, width in zip(row, widths, strict=True)
        )
        yield _GAP.join(cells).rstrip()


def terminal_size() -> os.terminal_size:
    """Return the size of the terminal, or 80 columns and 24 lines for what it does not know."""
    columns, lines = shutil.get_terminal_size()
    # Python 3.10 passes on the zeros of a terminal that knows no size, such as a serial console.
    return os.terminal_size((columns or 80, lines or 24))


def fitted(widths: Sequence[int], available: int) -> list[int]:
    """Return the widths of columns; if there is too little space, the widest columns become narrower.

    >>> fitted([5, 19, 60, 40], 80)
    [5, 19, 25, 25]
    >>> fitted([5, 19, 20], 80)
    [5, 19, 20]
    """
    room = available - len(_GAP) * (len(widths) - 1)
    narrowed = list(widths)
    while sum(narrowed) > room and max(narrowed) > _NARROWEST:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return a text with a number and a noun, which is in the plural unless the number is 1.

    >>> counted(1, "record"), counted(2500, "record"), counted(2, "batch", "es")
    ('1 record', '2,500 records', '2 batches')
    """
    return f"{number:,} {noun}{'' if number == 1 else plural}"
