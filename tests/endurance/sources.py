# SPDX-License-Identifier: Apache-2.0
"""The parts of the driver that read from outside: a file source, a Kinesis source, and an endpoint's client.

A file comes with each micro-batch, and is deleted after it was read. The stream is in memory, and its shard is
replaced again and again. The endpoint is another process, which stops and starts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

from file_reader import Reader
from kinesis_counting import module_text
from local_servers import free_port, served

from endurance.sampling import folder_figures
from statefun.components.running import Folder
from statefun.kinesis import reading
from statefun.kinesis.shard_tasks import read_task
from statefun.module.loader import parse_module

ENDPOINT = """
---
kind: io.statefun.endpoints.v2/http
spec: {{functions: served.parts/*, urlPathTemplate: 'http://127.0.0.1:{port}/', failurePolicy: skip}}
"""
SERVED = """
from statefun import *

@function("served.parts/f", specs=[ValueSpec("last", StringType)])
def f(ctx, message):
    ctx.storage.last = message.as_string()
    ctx.send(message_builder("parts/f", "0", str_value=ctx.storage.last))
"""
_STREAM = "users"
_SHARD_LIFE = 25
"""A shard gets the records of so many micro-batches; then another one replaces it."""
_SHARDS_LISTED = 3
"""Kinesis lists closed shards until their records expire; this stream keeps so many shards, once they are read."""
_UP, _DOWN = 2000, 100
"""For how many micro-batches the endpoint runs, and for how many it is stopped then."""


class Files:
    """A file ingress, and its files.

    Args:
        folder: for the files, and for the log of the ingress.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log"
        self._reader = Reader(folder, "{type: lines}", more="afterRead: delete")
        self._reader.write("first", "0\n")

    def read(self, batch: int) -> list[str]:
        """Write a file; return the records that the micro-batch reads."""
        self._reader.write(f"{batch}", f"{batch}\n")
        return self._reader.values()

    def figures(self) -> dict[str, float]:
        """Return what the log of the ingress takes."""
        return {f"log {what}": value for what, value in folder_figures(self._log).items()}


class Stream:
    """A stream in memory, as boto3's client shows it: one shard is open, and closed ones expire."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._first_shard, self._shards = 0, list[list[dict[str, Any]]]([[]])
        self._first_unread = 0
        """The number of the first shard whose end was not fetched yet."""

    def put(self, key: str, data: bytes) -> None:
        """Add a record to the open shard."""
        with self._lock:
            self._number += 1
            record = {
                "SequenceNumber": str(self._number),
                "ApproximateArrivalTimestamp": datetime.now(timezone.utc),
                "PartitionKey": key,
                "Data": data,
            }
            self._shards[-1].append(record)

    def replace(self) -> None:
        """Close the open shard, and open another one."""
        with self._lock:
            self._shards.append([])
            while len(self._shards) > _SHARDS_LISTED and self._first_shard < self._first_unread:
                del self._shards[0]
                self._first_shard += 1

    def list_shards(self, **_: Any) -> dict[str, Any]:
        """List the shards."""
        with self._lock:
            last = self._first_shard + len(self._shards) - 1
            shards = [
                {
                    "ShardId": _shard_id(number),
                    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
                    "SequenceNumberRange": {"StartingSequenceNumber": "0"}
                    | ({} if number == last else {"EndingSequenceNumber": "1"}),
                }
                | ({} if number == self._first_shard else {"ParentShardId": _shard_id(number - 1)})
                for number in range(self._first_shard, last + 1)
            ]
        return {"Shards": shards, "ResponseMetadata": {}}

    def get_shard_iterator(
        self,
        ShardId: str,  # noqa: N803 - boto3's
        StartingSequenceNumber: str = "0",  # noqa: N803 - boto3's
        **_: Any,
    ) -> dict[str, Any]:
        """Return an iterator: the number of the shard, and of the first record."""
        return {"ShardIterator": f"{int(ShardId.rpartition('-')[2])} {StartingSequenceNumber}"}

    def get_records(self, ShardIterator: str, **_: Any) -> dict[str, Any]:  # noqa: N803 - boto3's
        """Return all records of a shard from an iterator on."""
        shard, first = map(int, ShardIterator.split())
        with self._lock:
            place = shard - self._first_shard
            records = [each for each in self._shards[place] if int(each["SequenceNumber"]) >= first]
            following = f"{shard} {self._number + 1}"
            is_open = place == len(self._shards) - 1
            if not is_open:
                self._first_unread = max(self._first_unread, shard + 1)
        more = {"NextShardIterator": following} if is_open else {"ChildShards": [shard + 1]}
        return {"Records": records, "MillisBehindLatest": 0, **more}


class Kinesis:
    """A Kinesis ingress, and its stream.

    Args:
        folder: for the files of the ingress.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._stream = Stream()
        [ingress] = parse_module(
            module_text("http://127.0.0.1:1", "{type: earliest}")
        ).connector_ingresses
        with patch.object(reading, "connect", lambda _: self._stream):
            self._source = reading.KinesisSource(
                ingress.settings, [_STREAM], Folder.at(folder), 1000, is_fresh=True
            )
        self._source._shards.update()  # noqa: SLF001 - as the check at the start does
        self._offset = self._source.initial_offset()

    def read(self, batch: int) -> list[str]:
        """Put a record; return the records that were fetched by now."""
        self._stream.put(f"{batch % 10}", b"%d" % batch)
        if batch % _SHARD_LIFE == 0:
            self._stream.replace()
        end = self._source.latest_offset(self._offset)
        tasks = self._source.tasks(self._offset, end)
        self._offset = end
        return [
            row["value"].decode()
            for task in tasks
            for rows in read_task(task)
            for row in rows.to_pylist()
        ]

    def close(self) -> None:
        """Stop fetching."""
        self._source.stop()


class Elsewhere:
    """The server of an endpoint, which stops and starts.

    Args:
        folder: for its program.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._server = ExitStack()
        self.port = free_port()

    def look(self, batch: int) -> None:
        """Stop or start the server, if it is time for that."""
        if batch % (_UP + _DOWN) == 0:
            self._server.enter_context(served(self._folder, self.port, SERVED))
        elif batch % (_UP + _DOWN) == _UP:
            self._server.close()

    def close(self) -> None:
        """Stop the server."""
        self._server.close()


class Outside:
    """All that is read from outside, and the endpoint.

    Args:
        folder: for files.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._files, self._kinesis = Files(folder / "files"), Kinesis(folder / "kinesis")
        self._elsewhere = Elsewhere(folder / "elsewhere")
        self.read = dict.fromkeys(("files", "kinesis"), 0)
        """How many records were read, by ingress."""
        self.endpoint = ENDPOINT.format(port=self._elsewhere.port)
        """The document of the endpoint."""

    def look(self, batch: int) -> Iterator[str]:
        """Yield the records that a micro-batch reads."""
        self._elsewhere.look(batch)
        for name, values in (
            ("files", self._files.read(batch)),
            ("kinesis", self._kinesis.read(batch)),
        ):
            self.read[name] += len(values)
            yield from values

    def figures(self) -> dict[str, float]:
        """Return what it takes on the disk."""
        return self._files.figures()

    def close(self) -> None:
        """Stop everything."""
        self._kinesis.close()
        self._elsewhere.close()


def _shard_id(number: int) -> str:
    return f"shardId-{number:012}"
