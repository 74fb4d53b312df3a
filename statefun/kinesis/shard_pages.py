# SPDX-License-Identifier: Apache-2.0
"""Lists the shards of a stream, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def shard_pages(client: Any, stream: str) -> Iterator[Mapping[str, Any]]:
    """Yield the answers to ``ListShards`` that together list all shards of a stream."""
    parameters = {"StreamName": stream}
    while True:
        answer: Mapping[str, Any] = client.list_shards(**parameters)
        yield answer
        if not answer.get("NextToken"):
            return
        parameters = {"NextToken": answer["NextToken"]}


def is_closed(shard: Mapping[str, Any]) -> bool:
    """Return whether a shard in an answer to ``ListShards`` is closed: it gets no more records."""
    return "EndingSequenceNumber" in shard["SequenceNumberRange"]
