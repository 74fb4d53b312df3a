# SPDX-License-Identifier: Apache-2.0
"""Messages that ``statefun send`` puts into the checkpoint, for the application that runs with it.

The command writes each message as a file into ``<checkpoint>/sent``, under a name that begins with the time. The
driver looks into the folder before each micro-batch, and accepts a message by moving its file to
``sent/accepted/N``, where N is the message's number in the inbox. A file has one name at any moment, so a crash
neither loses a message nor doubles it.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, framed, unframed
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.sdk.errors import ConfigurationError

SENT_INBOX = "sent"
"""The name of the inbox in the offset of the feedback source."""
_FOLDER = "sent"
_ACCEPTED = "accepted"
_SUFFIX = ".message"
_READ_AT_ONCE = 1000
"""The largest number of messages that a micro-batch reads."""


def put_message(checkpoint: Folder, target: bytes, typename: str, value: bytes) -> None:
    """Put a message into a checkpoint: when this function returns, it is on the disk, and will be delivered once.

    Messages are delivered in the order in which they were put, as long as the machine's clock is not set back.

    Args:
        checkpoint: the checkpoint.
        target: the address, encoded as the key of its state.
        typename: the typename of the value.
        value: the encoded value.

    Raises:
        ConfigurationError: if the checkpoint is not on a local disk: elsewhere a driver does not look for messages.
    """
    if not checkpoint.is_local:
        raise ConfigurationError(
            f"messages can be sent only through a checkpoint on a local disk, and {checkpoint.shown} is not on one: "
            "send a record to an ingress of the application"
        )
    name = f"{time.time_ns():020}-{os.getpid()}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
    content = {
        "target": base64.b64encode(target).decode(),
        "typename": typename,
        "value": base64.b64encode(value).decode(),
    }
    checkpoint.child(_FOLDER).write(name, framed(_FOLDER, json.dumps(content).encode()))


class SentMessages:
    """The inbox of the messages that were put into a checkpoint.

    Args:
        checkpoint: the checkpoint.
        read: the number of the last message that earlier runs have planned to read.
    """

    is_durable = True

    def __init__(self, checkpoint: Folder, read: int) -> None:
        self._checkpoint = checkpoint
        self._folder = checkpoint.child(_FOLDER)
        self._accepted = self._folder.child(_ACCEPTED)
        self._newest = max([read, *self._numbers()])

    def open(self) -> None:
        """Do nothing: people may send messages at any time."""

    def readable(self, after: int, *, is_busy: bool) -> int:
        """Accept the messages that were put into the checkpoint; return the number of the last one to read."""
        del is_busy
        if self._checkpoint.is_local:
            names = [name for name in self._folder.names() if name.endswith(_SUFFIX)]
            for name in names[:_READ_AT_ONCE]:
                self._folder.move(name, f"{_ACCEPTED}/{self._newest + 1}")
                self._newest += 1  # only now, as it is on the disk: no number may be missing
        return min(max(after, self._newest), after + _READ_AT_ONCE)

    def messages(self, after: int, last: int) -> Sequence[AcceptedMessage]:
        """Return the messages with numbers from ``after + 1`` to ``last``, in order.

        Raises:
            CheckpointError: if a file is damaged.
        """
        return [self._read(number) for number in self._numbers() if after < number <= last]

    def is_pending(self) -> bool:
        """Return False: a run does not wait for messages that people may send later."""
        return False

    def forget(self, last: int) -> None:
        """Delete the messages up to number ``last``: the micro-batches that have read them are not repeated."""
        for number in self._numbers():
            if number <= last:
                self._accepted.remove(str(number))

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in self._accepted.names() if name.isdecimal())

    def _read(self, number: int) -> AcceptedMessage:
        return _read(self._checkpoint, f"{_ACCEPTED}/{number}", number)


def undelivered_sent(checkpoint: Folder, delivered: int) -> Iterator[AcceptedMessage]:
    """Yield the messages that were put into a checkpoint and not delivered yet, in order.

    Messages that the application accepts or deletes while they are read may be left out.

    Args:
        checkpoint: the checkpoint.
        delivered: the number of the last message that is delivered.

    Raises:
        CheckpointError: if a file is damaged.
    """
    folder = checkpoint.child(_FOLDER)
    accepted = sorted(int(name) for name in folder.child(_ACCEPTED).names() if name.isdecimal())
    number = max([delivered, *accepted])
    paths = [(each, f"{_ACCEPTED}/{each}") for each in accepted if each > delivered]
    new = [name for name in folder.names() if name.endswith(_SUFFIX)]
    for each, path in (*paths, *enumerate(new, number + 1)):
        with suppress(FileNotFoundError):
            yield _read(checkpoint, path, each)


def _read(checkpoint: Folder, path: str, number: int) -> AcceptedMessage:
    try:
        content = json.loads(unframed(_FOLDER, checkpoint.child(_FOLDER).read(path)))
        target, value = (base64.b64decode(content[key]) for key in ("target", "value"))
        return AcceptedMessage(number, target, str(content["typename"]), value)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, f"{_FOLDER}/{path}", error) from error
