# SPDX-License-Identifier: Apache-2.0
"""Whether a shard has ended: an answer without a next iterator says so, and may be wrong.

Whoever believes it of an open shard reads nothing more of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statefun.kinesis.answers import UndocumentedAnswerError
from statefun.kinesis.shard_pages import is_closed, shard_pages


def check_end(client: Any, stream: str, shard: str, answer: Mapping[str, Any]) -> None:
    """Check that an answer to ``GetRecords`` without a next iterator is that of a closed shard.

    Kinesis names the shards that follow a closed one, other servers may not: then the list of shards
    says whether it is closed.

    Raises:
        UndocumentedAnswerError: if more may come.
    """
    is_last = answer.get("NextShardIterator") is None
    if is_last and not (answer.get("ChildShards") or _is_listed_as_closed(client, stream, shard)):
        raise UndocumentedAnswerError(
            "GetRecords has an answer that is not Kinesis's: there is no NextShardIterator, and the "
            "shard is open"
        )


def _is_listed_as_closed(client: Any, stream: str, id_: str) -> bool:
    return any(
        shard["ShardId"] == id_ and is_closed(shard)
        for page in shard_pages(client, stream)
        for shard in page["Shards"]
    )
