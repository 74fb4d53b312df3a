# SPDX-License-Identifier: Apache-2.0
"""The rows of a task in Arrow batches; one batch may end and the next one begin within an address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from statefun.engine.address_values import AddressValues
from statefun.engine.groups import Columns, Group


class Row(NamedTuple):
    """A message on its way to an address."""

    target: bytes
    offset: int
    caller: bytes | None
    typename: str
    value: bytes
    trace: str | None = None
    timestamp: int | None = None
    """When it was due, if it was delayed."""

    @property
    def place(self) -> tuple[bytes, int, int]:
        """The key by which Spark sorts rows: delayed messages come last, by their due time."""
        return self.target, -1 if self.timestamp is None else self.timestamp, self.offset


def arrow_batches(
    rows: Sequence[Row], state: Mapping[bytes, bytes], most: int
) -> Iterator[list[Group]]:
    """Yield the groups of each Arrow batch of a task.

    Args:
        rows: the rows of the task, sorted.
        state: the stored state of each address.
        most: the most rows of a batch.
    """
    continued: dict[bytes, AddressValues] = {}
    for start in range(0, len(rows), most):
        batch, following = rows[start : start + most], rows[start + most : start + most + 1]
        groups = [*_groups(batch, state, continued)]
        if following and following[0].target == groups[-1].key:
            groups[-1].last = False
            continued = {groups[-1].key: groups[-1].values}
        yield groups


def _groups(
    rows: Sequence[Row], state: Mapping[bytes, bytes], continued: Mapping[bytes, AddressValues]
) -> Iterator[Group]:
    _, _, caller, typename, value, trace, _ = zip(*rows, strict=True)

    def cell(name: str, row: int) -> Any:
        record = {"topic": "in", "partition": 0, "timestamp": 0, "route": 0}
        record["offset"] = rows[row].offset
        return None if rows[row].caller is not None else record.get(name)

    columns = Columns(caller, typename, value, trace, [0] * len(rows), cell=cell)
    for key, group in groupby(range(len(rows)), key=lambda row: rows[row].target):
        indexes = list(group)
        values = continued.get(key) or AddressValues(state.get(key))
        yield Group(key, columns, indexes[0], indexes[-1] + 1, values)
