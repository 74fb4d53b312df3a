# SPDX-License-Identifier: Apache-2.0
"""The file ``former.json``: the ids that the query of a restored checkpoint had before.

In a snapshot, the file has the ids of the queries whose checkpoints were restored from the snapshot.

The lanes of an exactly-once egress have the id of the query in their names. The application that was lost may have left
a Kafka transaction open, which would hide all later records from readers of committed records until it times out; or its
lanes may have gathered records that no reader sees yet, and that are no longer in the outbox. So a start ends the lanes of
the former queries, and then deletes the file.
"""

from __future__ import annotations

import json

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

FORMER_QUERIES = "former.json"


def former_queries(checkpoint: Folder) -> list[str]:
    """Return the ids in the file; there are none if a start has ended the lanes of these queries.

    Raises:
        CheckpointError: if the file is damaged.
    """
    try:
        return [str(each) for each in json.loads(read_framed(checkpoint, FORMER_QUERIES))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise damaged(checkpoint, FORMER_QUERIES, error) from error


def add_former_query(checkpoint: Folder, query_id: str) -> None:
    """Add an id to the file of a checkpoint or snapshot."""
    ids = [*former_queries(checkpoint), query_id]
    write_framed(checkpoint, FORMER_QUERIES, json.dumps(ids).encode())


def keep_former_queries(checkpoint: Folder, snapshot: Folder) -> None:
    """Add the former queries of a checkpoint to those in an earlier snapshot, which the next one replaces."""
    present = former_queries(snapshot)
    for query_id in former_queries(checkpoint):
        if query_id not in present:
            add_former_query(snapshot, query_id)


def forget_former_queries(checkpoint: Folder) -> None:
    """Delete the file, since the lanes of all former queries have ended."""
    checkpoint.remove(FORMER_QUERIES)
