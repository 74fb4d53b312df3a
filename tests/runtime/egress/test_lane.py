# SPDX-License-Identifier: Apache-2.0
"""How many records a lane says it has handled; the cluster is one in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from runtime.egress.test_connector_lanes import staged

from statefun.engine.sinks import EgressRecord
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.egress.lane import Lane, LaneBatch, UncertainError, UndeliveredError
from statefun.runtime.egress.marker import Marker


@attrs.define
class Store:
    """A cluster that keeps markers, and loses some answers."""

    fates: list[str] = attrs.field(factory=list)
    """What becomes of the next writes: each succeeds, or is lost before or after it took effect."""
    values: list[bytes | None] = attrs.field(factory=list)
    marker: Marker | None = None

    def open(self) -> Marker | None:
        """Return the marker."""
        return self.marker

    def write(self, records: Sequence[EgressRecord], marker: Marker) -> None:
        """Write, or lose the request or its answer."""
        fate = self.fates.pop(0) if self.fates else "fine"
        if fate != "before":
            self.values += [record.value for record in records]
            self.marker = marker
        if fate != "fine":
            raise UncertainError(fate)

    def close(self) -> None:
        """Do nothing: there is no connection."""


def lane_of(folder: Folder, store: Store, run: str = "run", *, is_late: bool = False) -> Lane:
    """Return a lane with portions of two records, which has taken over from all earlier lanes."""
    lane = Lane(
        "egress t/out",
        run,
        folder,
        lambda: store,
        lambda _: None,
        is_late=lambda: is_late,
        chunk_records=2,
    )
    lane.open(["run", "next"])
    lane.claim()
    return lane


def batch_of(folder: Folder, number: int, size: int, *skipped: int) -> LaneBatch:
    """Stage a batch."""
    return LaneBatch.of(staged(folder, number, range(size), frozenset(skipped)), "t/out", 0)


def test_records_of_an_earlier_run_do_not_count_again(tmp_path: Path) -> None:
    """Skipped records do not count at all."""
    folder, store = Folder.at(tmp_path), Store()
    batches = [batch_of(folder, 0, 5, 1), batch_of(folder, 1, 3)]
    first = lane_of(folder, store)
    first.publish(batches[0])
    second = lane_of(folder, store, "next")

    for batch in batches:
        second.publish(batch)

    assert (first.handled, second.handled, len(store.values)) == (4, 3, 7)


def test_a_run_that_goes_on_in_a_batch_counts_the_rest(tmp_path: Path) -> None:
    """The run before it has counted the portions that it has written."""
    folder, store = Folder.at(tmp_path), Store()
    batch = batch_of(folder, 0, 5, 1, 4)
    first = lane_of(folder, store, is_late=True)
    with pytest.raises(UndeliveredError):
        first.publish(batch)
    second = lane_of(folder, store, "next")

    second.publish(batch)

    assert (first.handled, second.handled, len(store.values)) == (1, 2, 3)


@pytest.mark.parametrize("lost", ["before", "after"])
def test_records_whose_answer_was_missing_count_once(tmp_path: Path, lost: str) -> None:
    """The marker shows whether they were written."""
    folder, store = Folder.at(tmp_path), Store()
    lane = lane_of(folder, store)
    store.fates = ["fine", lost]

    lane.publish(batch_of(folder, 0, 5))

    assert (lane.handled, len(store.values)) == (5, 5)
