# SPDX-License-Identifier: Apache-2.0
"""The file ``order.json`` of a checkpoint: what a person has ordered a running application to do once."""

from __future__ import annotations

import json
from enum import Enum

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import damaged, read_framed, write_framed

ORDER_FILE = "order.json"


class Order(Enum):
    """What an application can be ordered to do."""

    DRAIN = "drain"
    """To read no more records, to deliver and publish everything, and to end."""
    RESTART = "restart"
    """To end its run, and to begin another one from the last committed micro-batch."""
    STOP = "stop"
    """To end its run as a signal does, but successfully."""


def write_order(checkpoint: Folder, order: Order) -> None:
    """Order a running application to do something; a later order replaces one that it has not read yet."""
    write_framed(checkpoint, ORDER_FILE, json.dumps({"order": order.value}).encode())


def take_order(checkpoint: Folder) -> Order | None:
    """Return the order in a checkpoint, and remove it; None if there is none.

    Raises:
        CheckpointError: if the file is damaged.
    """
    try:
        order = Order(json.loads(read_framed(checkpoint, ORDER_FILE))["order"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, ORDER_FILE, error) from error
    checkpoint.remove(ORDER_FILE)
    return order
