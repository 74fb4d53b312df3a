# SPDX-License-Identifier: Apache-2.0
"""The requests with which a file in HDFS is replaced; the NameNode is one in memory, which renames as HDFS does."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable
from typing import Any

import pytest
from hdfs_native import FileWriter

from statefun.runtime.checkpoint.hdfs import HdfsFiles
from statefun.runtime.checkpoint.store_errors import StoreError

FILE = "/folder/file"


class NameNode:
    """A client of an HDFS with few files, which looks at one of them after each request."""

    def __init__(self) -> None:
        self.files = {FILE: b"old", "/folder/other": b"new"}
        self.seen: list[bytes | None] = []
        """The content of the file after each request; None if there is no such file."""

    def create(self, path: str, options: object) -> Writer:
        """Create an empty file."""
        del options
        self.change({path: b""})
        return Writer(self, path)

    def get_file_info(self, path: str) -> bytes:
        """Return facts of a file."""
        return self.files[path]

    def mkdirs(self, path: str, *, create_parent: bool) -> None:
        """Do nothing: all folders are there."""

    def rename(self, path: str, target: str, overwrite: bool) -> None:
        """Rename a file in one step; replace the target if ``overwrite`` is set."""
        if target in self.files and not overwrite:
            raise FileExistsError(target)
        self.change({target: self.files.pop(path)})

    def delete(self, path: str) -> bool:
        """Delete a file."""
        is_there = self.files.pop(path, None) is not None
        self.change({})
        return is_there

    def change(self, files: dict[str, bytes]) -> None:
        """Add or replace files, and look at the one file."""
        self.files |= files
        self.seen.append(self.files.get(FILE))


class Writer(io.RawIOBase):
    """A file that is being written; each of its requests is one of the client."""

    def __init__(self, client: NameNode, path: str) -> None:
        self._client = client
        self._path = path
        self._content = b""

    def write(self, content: Any) -> int:
        """Keep the content until it is to be stored."""
        self._content += content
        return len(content)

    def hsync(self) -> None:
        """Store what is written so far."""
        self._client.change({self._path: self._content})

    def close(self) -> None:
        """Store all that is written."""
        self.hsync()


@pytest.mark.parametrize(
    "replace",
    [
        lambda files: files.write(FILE, b"new"),
        lambda files: files.move("/folder/other", FILE),
    ],
    ids=["write", "move"],
)
def test_a_file_is_there_after_each_request_that_replaces_it(
    replace: Callable[[HdfsFiles], None],
) -> None:
    """It has its old content until the last request, which renames: a crash between requests changes nothing."""
    client: Any = NameNode()

    replace(HdfsFiles(client, "hdfs://host:8020"))

    *before, last = client.seen
    assert (set(before) <= {b"old"}, last) == (True, b"new")
    assert client.files.keys() <= {FILE, "/folder/other"}


class _Inner:
    """The part of a file of hdfs_native that makes requests."""

    def __init__(self, *, is_broken: bool) -> None:
        self._is_broken = is_broken
        self.closed = 0

    def write(self, content: bytes) -> int:
        """Fail, if the NameNode does."""
        if self._is_broken:
            raise RuntimeError("no DataNode")
        return len(content)

    def hsync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Count the requests."""
        self.closed += 1


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_garbage_collector_makes_no_request(*, is_broken: bool) -> None:
    """Its thread would wait for a NameNode that does not answer, for ever."""
    inner: Any = _Inner(is_broken=is_broken)
    client: Any = NameNode()
    client.create = lambda path, _: client.files.update({path: b""}) or FileWriter(inner)
    files = HdfsFiles(client, "hdfs://host:8020")

    if is_broken:
        with pytest.raises(StoreError):
            files.write(FILE, b"new")
    else:
        files.write(FILE, b"new")
    gc.collect()

    assert inner.closed == (0 if is_broken else 1)
