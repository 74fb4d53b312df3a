# SPDX-License-Identifier: Apache-2.0
"""Reads the key ``eventTime`` of an ingress."""

from __future__ import annotations

from statefun.module.event_time import EventTime
from statefun.module.yaml.nodes import Node
from statefun.module.yaml.problems import Problems
from statefun.module.yaml.readers import choice, duration, text
from statefun.module.yaml.shapes import Key, Shape, described, schema_of

_DEFAULTS = EventTime()


@described(schema_of(text))
def _path(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read the path to a field: names with dots between them."""
    names = tuple(text(node, problems).split("."))
    if not all(names):
        sentence = "has an empty name; write the names of the fields with single dots between them"
        raise problems.report(node.location, node.path, sentence)
    return names


FIELD = Key(
    "field",
    _path,
    "the field of the record's value that has the event time: ISO 8601, or a number of seconds or "
    "milliseconds since the epoch; dots lead to fields of fields",
    default="(the record's timestamp)",
    example="clicked.at",
)
OUT_OF_ORDER = Key(
    "outOfOrder",
    duration,
    "by how much a record may be older than the newest record of its partition without being late",
    default="5s",
    example="1min",
)
IDLE = Key(
    "idle",
    duration,
    "how long a partition must have been read to its end until the watermark no longer waits for it",
    default="30s",
    example="5s",
)
MAX_FUTURE = Key(
    "maxFuture",
    duration,
    "how far a record may be ahead of the clock; a record further ahead is handled, but does not move "
    "the watermark",
    default="5min",
    example="1min",
)
MAX_HOLD = Key(
    "maxHold",
    duration,
    "how long messages between functions can keep the watermark from rising; the longest of all ingresses "
    "counts",
    default="10min",
    example="1min",
)
WHEN_ALL_IDLE = Key(
    "whenAllIdle",
    choice("whenAllIdle", {"hold": False, "follow": True}),
    "whether the watermark, while all partitions are idle, stays at the time of the newest partition (hold) "
    "or rises from there with the clock (follow); it rises only if all ingresses with event time say follow",
    default="hold",
    example="follow",
)
_SHAPE = Shape((FIELD, OUT_OF_ORDER, IDLE, MAX_FUTURE, MAX_HOLD, WHEN_ALL_IDLE))


@described(_SHAPE.schema)
def event_time(node: Node, problems: Problems) -> EventTime:
    """Read the settings of event time."""
    values = _SHAPE.read(node, problems)
    return EventTime(
        field=values.get(FIELD, ()),
        out_of_order=values.get(OUT_OF_ORDER, _DEFAULTS.out_of_order),
        idle=values.get(IDLE, _DEFAULTS.idle),
        max_future=values.get(MAX_FUTURE, _DEFAULTS.max_future),
        max_hold=values.get(MAX_HOLD, _DEFAULTS.max_hold),
        follows=values.get(WHEN_ALL_IDLE, default=False),
    )


EVENT_TIME = Key(
    "eventTime",
    event_time,
    "how records get their event times, and how these move the watermark; an empty mapping stands for all "
    "defaults",
    default="(records have no event time)",
    example={"field": "time", "outOfOrder": "5s"},
)
