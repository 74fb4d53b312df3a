# SPDX-License-Identifier: Apache-2.0
"""Frames for statefun's own files in a checkpoint, so that damaged files are detected.

A truncated Protobuf message can often still be decoded. So each file begins with a line that has
the file's path in the checkpoint, the length of its content, and its checksum::

    statefun outbox/7/manifest 1234 0a1b2c3d
"""

from __future__ import annotations

import zlib

from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.errors import CheckpointError

_MAGIC = b"statefun "


def write_framed(checkpoint: Folder, path: str, content: bytes) -> None:
    """Create or replace the file at ``path`` in a checkpoint in the form that :func:`read_framed` reads.

    Args:
        checkpoint: the root folder.
        path: the path below the root, with slashes.
        content: the file's content, without the first line with its checksum.
    """
    folder, name = _place(checkpoint, path)
    folder.write(name, framed(path, content))


def read_framed(checkpoint: Folder, path: str) -> bytes:
    """Check the file at ``path`` in a checkpoint, and return its content without the first line.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is damaged, or was written for another path.
    """
    folder, name = _place(checkpoint, path)
    try:
        return unframed(path, folder.read(name))
    except ValueError as error:
        raise damaged(checkpoint, path, error) from error


def framed(path: str, content: bytes) -> bytes:
    """Return the content of a file with the first line that :func:`unframed` checks."""
    return b"%s%s %d %08x\n" % (_MAGIC, path.encode(), len(content), zlib.crc32(content)) + content


def unframed(path: str, frame: bytes) -> bytes:
    """Check the content of a file, and return it without its first line.

    Raises:
        ValueError: if the file is damaged, or was written for another path.
    """
    _, _, content = frame.partition(b"\n")
    if frame != framed(path, content):
        raise ValueError("its content does not match the checksum in its first line")
    return content


def damaged(checkpoint: Folder, path: str, reason: object) -> CheckpointError:
    """Return the error for a file of a checkpoint that is damaged, with the reason."""
    return CheckpointError(
        f"{checkpoint.shown}/{path} is damaged ({reason}); restore the checkpoint from a copy"
    )


def _place(checkpoint: Folder, path: str) -> tuple[Folder, str]:
    folder, _, name = path.rpartition("/")
    return (checkpoint.child(folder) if folder else checkpoint), name
