# SPDX-License-Identifier: Apache-2.0
"""Reads the messages that the playground has accepted, while its database is closed or another process uses it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.playground_store import PLAYGROUND_FILE
from statefun.sdk.errors import CheckpointError


def undelivered_posted(checkpoint: Folder, delivered: int) -> Iterator[AcceptedMessage]:
    """Yield the messages that the playground of a checkpoint has accepted and that are not delivered yet, in order.

    Args:
        checkpoint: the checkpoint; nothing is created if it has no playground.
        delivered: the number of the last message that is delivered.

    Raises:
        CheckpointError: if the database cannot be used.
    """
    if not (checkpoint.is_local and checkpoint.has(PLAYGROUND_FILE)):
        return
    path = Path(checkpoint.location) / PLAYGROUND_FILE
    # Without a log of SQLite's, nobody has opened the database: it can be read without the right to write.
    is_open = path.with_name(f"{PLAYGROUND_FILE}-wal").exists()
    uri = f"{path.absolute().as_uri()}?mode=ro{'' if is_open else '&immutable=1'}"
    posted = "SELECT * FROM posted WHERE number > ? ORDER BY number"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            for row in database.execute(posted, (delivered,)):
                yield AcceptedMessage(*row)
    except sqlite3.Error as error:
        raise CheckpointError(
            f"the playground's database {path} cannot be used: {error}"
        ) from error
