# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statefun.engine.watermark import Partition
from statefun.runtime.ingress.partition_ends import CaughtUp, End

PARTITION = Partition("t/in", "clicks", 0)


def test_a_partition_is_caught_up_for_as_long_as_its_cluster_has_confirmed() -> None:
    """The age of the answer counts: nobody knows what has come since, whatever the time is now."""
    caught_up = CaughtUp()

    assert caught_up.look({PARTITION: 5}, {PARTITION: End(5, 1000)}) == {PARTITION: 0}
    assert caught_up.look({PARTITION: 5}, {PARTITION: End(5, 1000)}) == {PARTITION: 0}
    assert caught_up.look({PARTITION: 5}, {PARTITION: End(5, 3000)}) == {PARTITION: 2000}


def test_a_backlog_or_a_silent_cluster_begins_anew() -> None:
    """So does a record that was read meanwhile."""
    caught_up = CaughtUp()
    for read, ends in ((5, {PARTITION: End(6, 2000)}), (5, {}), (6, {PARTITION: End(6, 2000)})):
        caught_up.look({PARTITION: 5}, {PARTITION: End(5, 1000)})

        caught_up.look({PARTITION: read}, ends)

        assert caught_up.look({PARTITION: 6}, {PARTITION: End(6, 4000)})[PARTITION] <= 2000
