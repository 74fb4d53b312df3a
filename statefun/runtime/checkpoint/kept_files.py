# SPDX-License-Identifier: Apache-2.0
"""Keeps files of a checkpoint in a store in memory, so that the driver need not request them again.

Spark's logs, and the manifests of runs, never change once they exist, and only the owner of the checkpoint deletes them.
So the owner reads each of them at most once. Its own JVM creates the commits, so that it need not ask the store whether
a batch is committed; it asks once in a while, to find the commit of another driver that has taken over.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

import attrs

_PERMANENT = re.compile(r"(?:^|/)(?:metadata|(?:offsets|commits)/\d+|outbox/\d+/manifest-\w+)$")
"""The paths of files that never change once they exist."""
_SPARKS = re.compile(r"(?:^|/)(?:metadata|(?:offsets|commits)/\d+)$")
"""The paths of those that Spark writes, and may write again after this process has deleted them."""
_MOST_BYTES = 32 * 1024 * 1024
_MOST_FILES = 1000
_ASK = timedelta(seconds=1)


@attrs.define
class OwnCommits:
    """The batches that this process's JVM has committed in the present run."""

    run: str
    """The id of the run."""
    earlier: int
    """The newest batch that was committed before the run; -1 if there was none."""
    _latest: Callable[[], int]
    """Returns the newest batch that the run has committed; -1 if it has committed none, or that is not known."""
    _known: int = attrs.field(init=False, default=-1)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock, eq=False, repr=False)
    _asked: float = attrs.field(init=False, factory=time.monotonic)

    def newest(self) -> int:
        """Return the newest committed batch; -1 if there is none."""
        self.learn(max(self.earlier, self._latest()))
        return self._known

    def has(self, batch: int) -> bool:
        """Return whether the run has committed a batch."""
        return self.earlier < batch <= self.newest()

    def learn(self, batch: int) -> None:
        """Take note that the run has committed a batch: the store may show the commit before the JVM knows of it."""
        with self._lock:
            self._known = max(self._known, batch)

    def is_to_ask(self) -> bool:
        """Return True once a second: then the caller asks the store for a commit of another driver."""
        now = time.monotonic()
        if now - self._asked < _ASK.total_seconds():
            return False
        self._asked = now
        return True


class KeptFiles:
    """The content of permanent files that this process has read or written; may be used in any thread.

    Args:
        most: the largest number of bytes to keep; beyond that, the files that were used last are kept.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._most = most
        self._size = 0
        self._contents: OrderedDict[str, bytes | None] = OrderedDict()
        """The contents by path; None for a file that this process has deleted."""
        self._readers: dict[str, object] = {}
        """The newest read of each file that is being read, unless this process has changed the file since it began."""
        self._lock = threading.Condition()
        """Is notified when a read ends, and when a file changes."""
        self.own_commits: OwnCommits | None = None
        """The commits of the present run; None before its query."""

    def read(self, path: str, read: Callable[[str], bytes]) -> bytes:
        """Return the content of a file; ``read`` reads it if it is not kept.

        If another thread is reading the file, wait for its result. If that thread finds no file, read it all the same:
        the file may have been written meanwhile.

        Raises:
            FileNotFoundError: if there is no such file.
        """
        if _PERMANENT.search(path) is None:
            return read(path)
        reader = object()
        with self._lock:
            other = self._readers.get(path)
            if other is not None:
                self._lock.wait_for(lambda: self._readers.get(path) is not other)
            if path in self._contents:
                self._contents.move_to_end(path)
                known = self._contents[path]
                if known is None:
                    raise FileNotFoundError(path)
                return known
            self._readers[path] = reader
        content: bytes | None = None
        try:
            content = read(path)
        finally:
            with self._lock:
                if self._readers.get(path) is reader:
                    del self._readers[path]
                    if content is not None:
                        self._keep(path, content)
                    self._lock.notify_all()
        return content

    def has(self, path: str) -> bool:
        """Return whether a file is kept, and so exists."""
        with self._lock:
            return self._contents.get(path) is not None

    def keep(self, path: str, content: bytes | None) -> None:
        """Keep the content of a file that this process has read or written, if the file is permanent.

        Args:
            path: the path of the file.
            content: its content; None if this process has deleted it.
        """
        if _PERMANENT.search(path) is None:
            return
        with self._lock:
            self._readers.pop(path, None)
            self._keep(path, content)
            self._lock.notify_all()

    def drop(self, folder: str) -> None:
        """Forget the files in a folder and below it, since this process deletes them."""
        with self._lock:
            for path in [*self._contents, *self._readers]:
                if path.startswith(f"{folder}/"):
                    self._readers.pop(path, None)
                    self._forget(path)
            self._lock.notify_all()

    def _keep(self, path: str, content: bytes | None) -> None:
        self._forget(path)
        if content is None and _SPARKS.search(path) is not None:
            return
        self._contents[path] = content
        self._size += len(content or b"")
        while self._size > self._most or len(self._contents) > _MOST_FILES:
            self._forget(next(iter(self._contents)))

    def _forget(self, path: str) -> None:
        self._size -= len(self._contents.pop(path, None) or b"")
