# SPDX-License-Identifier: Apache-2.0
"""Checks that a shard has really ended if an answer to ``GetRecords`` has no next iterator.

A proxy's answer may lack the iterator although the shard is open. A reader that took such an answer
for the end of the shard would read no more records of the shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statefun.kinesis.answers import UndocumentedAnswerError
from statefun.kinesis.shard_pages import is_closed, shard_pages


def check_end(client: Any, stream: str, shard: str, answer: Mapping[str, Any]) -> None:
    """Check that an answer to ``GetRecords`` without a next iterator comes from a closed shard.

    Answers of Kinesis name the shards that replace a closed shard. If an answer of another server does
    not, the list of the stream's shards decides whether the shard is closed.

    Raises:
        UndocumentedAnswerError: if the shard is open.
    """
    is_last = answer.get("NextShardIterator") is None
    if is_last and not (answer.get("ChildShards") or _is_listed_as_closed(client, stream, shard)):
        raise UndocumentedAnswerError(
            "the answer to GetRecords does not come from Kinesis: it has no NextShardIterator, although "
            "the shard is open"
        )


def _is_listed_as_closed(client: Any, stream: str, id_: str) -> bool:
    return any(
        shard["ShardId"] == id_ and is_closed(shard)
        for page in shard_pages(client, stream)
        for shard in page["Shards"]
    )
