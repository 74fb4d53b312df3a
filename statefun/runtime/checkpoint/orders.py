# SPDX-License-Identifier: Apache-2.0
"""The file ``order.json`` of a checkpoint: the newest order that a person has given to the application."""

from __future__ import annotations

import json
import uuid
from enum import Enum

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

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
    """The orders to one application: each is read once, and only those that are given from now on.

    The file with an order stays until the next start: if it were deleted after it was read, an order that is given in
    between would be deleted, too.
    """

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._read = ""
        """The id of the last order that was read."""
        checkpoint.remove(ORDER_FILE)  # it was meant for an earlier run

    def next(self) -> Order | None:
        """Return the order in the checkpoint if it was not read yet; None if there is none.

        Raises:
            CheckpointError: if the file is damaged.
        """
        try:
            content = json.loads(read_framed(self._checkpoint, ORDER_FILE))
            order, id_ = Order(content["order"]), str(content["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(self._checkpoint, ORDER_FILE, error) from error
        if id_ == self._read:
            return None
        self._read = id_
        return order
