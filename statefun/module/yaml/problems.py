# SPDX-License-Identifier: Apache-2.0
"""Collects the problems of module files, so that reading does not stop at the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from statefun.module.location import Location
from statefun.sdk.errors import Problem

T = TypeVar("T")


class Invalid(Exception):  # noqa: N818 - it is a signal, and never reaches a user
    """Raised if a value cannot be read because of a problem that has already been reported."""


class Problems:
    """Collects the problems that readers report.

    A reader that cannot go on raises the result of `report`; a reader of several values catches
    `Invalid` and goes on with the next value, so that it finds the remaining problems as well::

        raise problems.report(node.location, node.path, "is not a number")
    """

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def report(self, location: Location, key: str, text: str) -> Invalid:
        """Add a problem; return the exception Invalid, which the caller raises if it cannot go on."""
        self._problems.append(
            Problem(
                file=location.file, line=location.line, column=location.column, key=key, text=text
            )
        )
        return Invalid()

    def in_file_order(self, files: Iterable[str]) -> tuple[Problem, ...]:
        """Return all problems, sorted by file (in the order of ``files``), line and column."""
        order = {file: index for index, file in enumerate(files)}
        return tuple(
            sorted(self._problems, key=lambda each: (order[each.file], each.line, each.column))
        )


def read_all(reads: Iterable[Callable[[], T]]) -> tuple[T, ...]:
    """Call all functions, even if some raise Invalid, so that all problems are reported; return the results.

    Raises:
        Invalid: if any of the functions raised it.
    """
    results: list[T] = []
    invalid = False
    for read in reads:
        try:
            results.append(read())
        except Invalid:
            invalid = True
    if invalid:
        raise Invalid
    return tuple(results)
