# SPDX-License-Identifier: Apache-2.0
"""Passes facts about a micro-batch from the driver to its tasks, as properties of their Spark job."""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark import SparkContext, TaskContext

from statefun.engine.clock import BatchClock, Clock
from statefun.sdk.address import Address
from statefun.sdk.invocation_batch import Turn

_TIME = "statefun.time"
_DELIVERED_UP_TO = "statefun.delivered-up-to"
_TURN = "statefun.turn"
_WATERMARK = "statefun.watermark"
_NOTHING = "nothing"


class Announcement(NamedTuple):
    """Facts about a micro-batch that only the driver knows, and that its tasks need."""

    time: int
    """The time of the driver's clock when the micro-batch began, in milliseconds since the epoch."""
    delivered_up_to: int | None
    """All messages of micro-batches up to this number were delivered before the present micro-batch.

    None while messages of an earlier run are not delivered yet."""

    turn: Turn | None = None
    """The suspect address that is called alone in this micro-batch; None if there is none."""

    watermark: int | None = None
    """The watermark, in milliseconds since the epoch; None if there is none."""

    def clock(self, own: Clock) -> BatchClock:
        """Return a clock that shows the driver's time in a worker, with the help of the worker's clock ``own``."""
        return BatchClock(own, self.time)


def announce(context: SparkContext, announcement: Announcement) -> None:
    """Pass an announcement to the tasks of all later Spark jobs of this thread."""
    time, delivered_up_to, turn, watermark = announcement
    context.setLocalProperty(_TIME, str(time))
    context.setLocalProperty(
        _DELIVERED_UP_TO, _NOTHING if delivered_up_to is None else str(delivered_up_to)
    )
    context.setLocalProperty(_TURN, _NOTHING if turn is None else json.dumps(turn))
    context.setLocalProperty(_WATERMARK, _NOTHING if watermark is None else str(watermark))


def current_announcement() -> Announcement:
    """Return what the driver has announced to the tasks about the present micro-batch."""
    task = TaskContext.get()
    names = (_TIME, _DELIVERED_UP_TO, _TURN, _WATERMARK)
    time, delivered_up_to, turn, watermark = (
        task.getLocalProperty(name) if task else None for name in names
    )
    if time is None or delivered_up_to is None or turn is None or watermark is None:
        raise AssertionError(
            "the driver must announce a micro-batch before it starts the Spark job"
        )
    return Announcement(
        int(time),
        None if delivered_up_to == _NOTHING else int(delivered_up_to),
        None if turn == _NOTHING else _turn_of(turn),
        None if watermark == _NOTHING else int(watermark),
    )


def _turn_of(text: str) -> Turn:
    (namespace, name, id_, _), *others = json.loads(text)
    return Turn(Address(namespace, name, id_), *others)
