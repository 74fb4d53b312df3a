# SPDX-License-Identifier: Apache-2.0
"""Checks that a shard has ended: an answer without a next iterator means so, and may be wrong.

A reader that believed such an answer for an open shard would read nothing more of the shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statefun.kinesis.answers import UndocumentedAnswerError
from statefun.kinesis.shard_pages import is_closed, shard_pages


def check_end(client: Any, stream: str, shard: str, answer: Mapping[str, Any]) -> None:
    """Check that an answer to ``GetRecords`` without a next iterator comes from a closed shard.

    The answer of Kinesis names the shards that replace a closed shard. Answers of other servers may not:
    then the list of shards decides.

    Raises:
        UndocumentedAnswerError: if the shard is open.
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
