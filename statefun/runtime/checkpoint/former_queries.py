# SPDX-License-Identifier: Apache-2.0
"""The file ``former.json``: the ids that the query of a restored checkpoint had before.

In a snapshot, it has the ids of the checkpoints that were restored from the snapshot.

Names of Kafka transactions have the id of the query. The lost application may have ended in the midst of a transaction,
which would hide all later records from readers of committed records until it times out. A start ends the transactions
of the former queries, and then deletes the file.
"""

from __future__ import annotations

import json

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

_FILE = "former.json"


def former_queries(checkpoint: Folder) -> list[str]:
    """Return the former ids of the query whose transactions no start has ended yet.

    Raises:
        CheckpointError: if the file is damaged.
    """
    try:
        return [str(each) for each in json.loads(read_framed(checkpoint, _FILE))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise damaged(checkpoint, _FILE, error) from error


def add_former_query(checkpoint: Folder, query_id: str) -> None:
    """Add an id to the file of a checkpoint or snapshot."""
    ids = [*former_queries(checkpoint), query_id]
    write_framed(checkpoint, _FILE, json.dumps(ids).encode())


def forget_former_queries(checkpoint: Folder) -> None:
    """Delete the file, since the transactions of all former queries have ended."""
    checkpoint.remove(_FILE)
