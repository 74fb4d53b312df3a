# SPDX-License-Identifier: Apache-2.0
"""A very short version of ``make cluster``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_soak import cluster_soak
from cluster_troubles import cut_driver, decommission, kill_executor
from soak_troubles import living

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.long(minutes=1.4)
def test_the_topic_holds_what_the_surviving_state_says(tmp_path: Path) -> None:
    """An executor of a cluster is killed: its micro-batch is repeated on another one.

    The driver's log has the lines of functions.
    """
    with cluster_soak(tmp_path, 1, workers=1, is_local=True) as soak:
        soak.send(100)
        driver = living(soak)
        kill_executor(soak, driver)

        assert soak.finish(driver) == ""
        assert "soak/f0/x (batch" in driver.log_file.read_text(errors="replace")
    assert soak.done["executors killed"]


@pytest.mark.long(minutes=1.5)
def test_executors_that_lose_their_driver_or_end_in_order_lose_nothing(tmp_path: Path) -> None:
    """The driver is reached at its own three ports alone, also for long calls."""
    with cluster_soak(tmp_path, 1, workers=1, is_local=True) as soak:
        soak.send(1000)
        driver = living(soak)
        decommission(soak, driver)
        driver = living(soak, driver)
        cut_driver(soak, driver)
        driver = living(soak, driver if driver.is_running else None)

        assert soak.finish(driver) == ""
        assert "cannot connect to the driver" not in driver.log_file.read_text(errors="replace")
    assert soak.done.keys() >= {
        "Spark workers added, and others decommissioned",
        "drivers cut off their executors",
    }
