# SPDX-License-Identifier: Apache-2.0
"""One checkpoint for all tests of stored state."""

from __future__ import annotations

from pathlib import Path

import pytest
from state_application import made_checkpoint


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of an application that has ended, with snapshots and changelogs."""
    return made_checkpoint(tmp_path_factory.mktemp("real"))
