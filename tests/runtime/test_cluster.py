# SPDX-License-Identifier: Apache-2.0
"""A very short version of ``make cluster``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster_soak import cluster_soak
from cluster_troubles import kill_executor
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
