# SPDX-License-Identifier: Apache-2.0
"""The changelogs of state stores: the changes of one partition in one micro-batch.

Based on ``StateStoreChangelogWriterV3`` (``StateStoreChangelog.scala``) of Spark 4.2.0. In checkpoint format 2, it
writes a version, the ids of the previous changelogs since a snapshot, and then the changes. A change is the size and
the content of the key, and the size and the content of the value. The size -1 in place of a value means that the key
was removed; in place of a key, it means the end. Sizes are big-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import cached_property

import attrs

from statefun.runtime.spark_internals.lz4_blocks import decompressed

_VERSION = "v3"
_SIZE = struct.Struct(">i")
_TEXT_SIZE = struct.Struct(">H")
_NONE = -1

Version = tuple[int, str]
"""The number of a version of a state store, and the id of the task that has written it."""


@attrs.frozen(slots=False)
class Changelog:
    """The changes that one micro-batch has made to one partition of the state."""

    before: tuple[Version, ...]
    """The versions before this one, from one that has a snapshot, or from the first one, in order."""
    _content: bytes = attrs.field(repr=False)
    _start: int

    @classmethod
    def decode(cls, file: bytes) -> Changelog:
        """Decode the content of a changelog's file.

        Raises:
            ValueError: if the content is damaged or in another form.
        """
        content = decompressed(file)
        try:
            version, start = _text(content, 0)
            if version != _VERSION:
                raise ValueError(f"it is of version {version!r}, and not {_VERSION}")
            lineage, start = _text(content, start)
            before = tuple(
                (int(each["version"]), str(each["checkpointUniqueId"]))
                for each in json.loads(lineage)
            )
        except (struct.error, KeyError, TypeError) as error:
            raise ValueError(f"its head is malformed: {error}") from error
        return cls(before, content, start)

    def may_have(self, key: bytes) -> bool:
        """Return whether the changelog may have a change of a key; if False, it has none."""
        return key in self._content

    @cached_property
    def changes(self) -> dict[bytes, bytes | None]:
        """The last change of each key: its new value, or None if the key was removed.

        Raises:
            ValueError: if the content is malformed.
        """
        return dict(self._changes())

    def _changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        content, position, size_at = self._content, self._start, _SIZE.unpack_from
        try:
            while True:
                (size,) = size_at(content, position)
                position += _SIZE.size
                if size < 0:
                    break
                key = content[position : position + size]
                position += size
                (size,) = size_at(content, position)
                position += _SIZE.size
                if size < 0:
                    yield key, None
                    continue
                yield key, content[position : position + size]
                position += size
        except struct.error:  # a size is larger than the rest of the content
            raise ValueError("it ends within a change") from None
        if size != _NONE or position != len(content):
            raise ValueError("it goes on after its end")


def _text(content: bytes, start: int) -> tuple[str, int]:
    """Return the text that begins at ``start``, and the position after it."""
    (size,) = _TEXT_SIZE.unpack_from(content, start)
    start += _TEXT_SIZE.size
    if start + size > len(content):
        raise ValueError("its head is cut off")
    return content[start : start + size].decode(), start + size
