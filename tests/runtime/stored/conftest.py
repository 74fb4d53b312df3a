# SPDX-License-Identifier: Apache-2.0
"""One checkpoint for all tests of stored state."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from state_application import made_checkpoint, read_counts

from statefun import CheckpointError, ConfigurationError
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.stored.committed_state import with_state

_BEFORE_THE_FIRST_COMMIT = ("there is no checkpoint", "was not made by statefun", "is still empty")


@attrs.define
class Real:
    """The checkpoint of an application that has ended."""

    checkpoint: Path
    seen: list[tuple[int, dict[str, int]]]
    """What was read while the application ran: numbers of micro-batches, and the counts by id."""


@pytest.fixture(scope="session")
def read_while_running(tmp_path_factory: pytest.TempPathFactory) -> Real:
    """Return a checkpoint with snapshots and changelogs, and what was read meanwhile."""
    seen = []

    def read(checkpoint: Path) -> None:
        try:
            seen.append(with_state(Folder.at(checkpoint), None, read_counts))
        except (CheckpointError, ConfigurationError) as error:
            if not any(text in str(error) for text in _BEFORE_THE_FIRST_COMMIT):
                raise

    return Real(made_checkpoint(tmp_path_factory.mktemp("real"), read), seen)


@pytest.fixture
def real(read_while_running: Real) -> Path:
    """Return the checkpoint of an application that has ended, with snapshots and changelogs."""
    return read_while_running.checkpoint
