# SPDX-License-Identifier: Apache-2.0
"""The messages in the playground's database, beside a run or after it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE, PlaygroundStore
from statefun.runtime.stored.posted import undelivered_posted


def test_messages_that_are_not_delivered_can_be_read_beside_a_run(tmp_path: Path) -> None:
    """All of them, in order; where there is no playground, none is made."""
    folder = Folder.at(tmp_path)
    assert [*undelivered_posted(folder, 0)] == []
    assert not folder.has(PLAYGROUND_FILE)
    with closing(PlaygroundStore(folder)) as store:
        for _ in range(5):
            store.post(b"a", "a/T", bytes(5_000_000))
        assert [each.number for each in undelivered_posted(folder, 2)] == [3, 4, 5]

    # Without the right to write, too: nothing is created beside the database.
    assert [each.number for each in undelivered_posted(folder, 4)] == [5]
    assert folder.names() == [PLAYGROUND_FILE]
    assert [*undelivered_posted(folder, 5)] == []
