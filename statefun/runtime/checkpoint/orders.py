# SPDX-License-Identifier: Apache-2.0
"""The file ``order.json`` of a checkpoint: the newest order that a person has given to the application."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from enum import Enum

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, unframed, write_framed
from statefun.runtime.checkpoint.lock import begun_at

ORDER_FILE = "order.json"


class Order(Enum):
    """An order that a person can give to a running application."""

    DRAIN = "drain"
    """To read no more records, to deliver and publish everything, and to end."""
    RESTART = "restart"
    """To end its run, and to begin another one from the last committed micro-batch."""
    STOP = "stop"
    """To end its run as a signal does, but successfully."""


def write_order(checkpoint: Folder, order: Order) -> None:
    """Order a running application to do something; a later order replaces one that it has not read yet."""
    content = {"order": order.value, "id": uuid.uuid4().hex}
    write_framed(checkpoint, ORDER_FILE, json.dumps(content).encode())


class Orders:
    """The orders to one application: each is read once, and only those that are given since the run has begun.

    A command gives an order as soon as the run has the lock of the checkpoint, perhaps before this object is made. So the
    times of the files decide whether an order is for this run, if the storage has them. The file with an order stays until
    the run ends: if it were deleted after it was read, an order that is given in between would be deleted, too.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._read = b""
        """The content of the file when an order was read last, or when it had an order to an earlier run."""
        with suppress(FileNotFoundError):
            content, begun = checkpoint.read(ORDER_FILE), begun_at(checkpoint)
            facts = checkpoint.facts(ORDER_FILE)  # after the content: somebody may replace the file
            if not begun or facts is None or facts.modified < begun:
                self._read = content

    def next(self) -> Order | None:
        """Return the order in the checkpoint if it was not read yet; None if there is none.

        Raises:
            CheckpointError: if the file is damaged.
        """
        try:
            content = self._checkpoint.read(ORDER_FILE)
            if content == self._read:
                return None
            order = Order(json.loads(unframed(ORDER_FILE, content))["order"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(self._checkpoint, ORDER_FILE, error) from error
        self._read = content
        return order

    def close(self) -> None:
        """Delete the order to this run, which ends, so that a clock that is set back does not make it one to the next run."""
        self._checkpoint.remove(ORDER_FILE)
