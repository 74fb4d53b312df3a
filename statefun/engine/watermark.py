# SPDX-License-Identifier: Apache-2.0
"""Computes the watermark of the next micro-batch from the facts of committed micro-batches.

The watermark is the event time up to which everything has been handled: records, as far as the settings of their
ingresses can tell, and messages between functions for certain, because the outbox has all that are under way.
All times are in milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import attrs

from statefun.engine.address_keys import address_of
from statefun.module.event_time import EventTime
from statefun.protocol.runtime_pb2 import EventTimes
from statefun.sdk.event_fields import EARLIEST_TIME
from statefun.sdk.times import in_milliseconds


class Partition(NamedTuple):
    """A partition of an ingress with event time."""

    ingress: str
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Holder(NamedTuple):
    """What keeps the watermark from rising."""

    kind: str
    """``partition``, ``message``, ``waiting``, ``timer``, ``unread`` (a partition without a record yet) or ``idle``."""
    name: str
    """The partition, or the address that gets the message; empty for waiting messages and if all are idle."""
    since: int
    """When it began to hold the present watermark; time in which no micro-batch was planned does not count."""
    seen: int = 0
    """When a micro-batch was planned last."""


_OBSERVED = timedelta(seconds=10)
"""How much of the time between two plans counts as time in which a message has held the watermark.

Otherwise a message would be passed by after an outage or a pause of the application, before it could be delivered."""


def _sorted(numbers: Mapping[Any, int]) -> dict[Any, int]:
    return dict(sorted(numbers.items()))


@attrs.frozen
class EventProgress:
    """How far event time has come before a micro-batch."""

    watermark: int | None = None
    """The watermark; None as long as a partition has neither been read nor become idle.

    A partition without any record yet keeps it at its present value, also if the partition is new."""
    newest: Mapping[Partition, int] = attrs.field(factory=dict, converter=_sorted)
    """The event time of the newest record of each partition that is read, as far as it moves the watermark."""
    waiting: Mapping[int, int] = attrs.field(factory=dict, converter=_sorted)
    """How many addresses hold the watermark with their waiting messages, by the time at which they hold it."""
    idle: frozenset[Partition] = frozenset()
    """The partitions for which the watermark does not wait."""
    holder: Holder | None = None
    """What keeps the watermark from rising; None before anything does."""
    released: int = 0
    """How often a message was passed by, because it had held the watermark for too long."""
    future: int = 0
    """How many records were so far in the future that they did not move the watermark."""

    def encode(self) -> dict[str, Any]:
        """Return the progress as a dict for JSON."""
        newest: dict[str, Any] = {}
        for (ingress, topic, number), time in self.newest.items():
            newest.setdefault(ingress, {}).setdefault(topic, {})[str(number)] = time
        document: dict[str, Any] = {"watermark": self.watermark, "newest": newest}
        if self.waiting:
            document["waiting"] = {str(time): count for time, count in self.waiting.items()}
        if self.idle:
            document["idle"] = [list(each) for each in sorted(self.idle)]
        if self.holder is not None:
            document["holder"] = list(self.holder)
        for name in ("released", "future"):
            if getattr(self, name):
                document[name] = getattr(self, name)
        return document

    @classmethod
    def decode(cls, document: Mapping[str, Any]) -> EventProgress:
        """Decode what :meth:`encode` returns.

        Raises:
            KeyError: if a part is missing.
            TypeError: if a part has another form.
        """
        holder = document.get("holder")
        return cls(
            document["watermark"],
            {
                Partition(ingress, topic, int(number)): int(time)
                for ingress, topics in document["newest"].items()
                for topic, numbers in topics.items()
                for number, time in numbers.items()
            },
            {int(time): int(count) for time, count in document.get("waiting", {}).items()},
            frozenset(Partition(*each) for each in document.get("idle", ())),
            None if holder is None else Holder(*holder),
            int(document.get("released", 0)),
            int(document.get("future", 0)),
        )


@attrs.frozen
class Situation:
    """The state of the ingresses' partitions, and of the run, when the driver plans a micro-batch."""

    partitions: Collection[Partition] = ()
    """The partitions that are read, with or without records."""
    caught_up: Mapping[Partition, int] = attrs.field(factory=dict)
    """For each partition that is read to its end: for how long it has been so, without any new record."""
    now: int = 0
    """The time of the driver's clock."""
    is_bounded: bool = False
    """Whether the run reads only what the partitions hold now: an empty one is then idle at once."""
    next_timer: int | None = None
    """The event time at which the next messages of ``send_at`` are due; None if none wait."""
    is_over: bool = False
    """Whether all records are read and none will come: the watermark then rises to each time at which messages of
    ``send_at`` are due, and not further."""


def next_progress(
    before: EventProgress,
    facts: Iterable[EventTimes],
    settings: Mapping[str, EventTime],
    situation: Situation,
) -> EventProgress:
    """Return the progress before the next micro-batch.

    Args:
        before: the progress before the last micro-batches.
        facts: the facts about event time that these micro-batches have reported; the micro-batches are committed, and
            their messages are not delivered.
        settings: the settings of event time, by the id of the ingress.
        situation: the state of the partitions, and the clock.
    """
    facts = list(facts)
    newest = _newest(before, facts, settings, situation)
    idle = frozenset(_idle(newest, settings, situation))
    values = {
        each: max(
            newest[each] - in_milliseconds(settings[each.ingress].out_of_order), EARLIEST_TIME
        )
        for each in situation.partitions
        if each in newest
    }
    waiting = _waiting(before, facts)
    candidate, kind, name = _of_partitions(values, idle, settings, situation)
    if situation.is_over and situation.next_timer is not None:
        candidate = max(situation.next_timer, EARLIEST_TIME if candidate is None else candidate)
    for time, kind_, name_ in _holds(facts, waiting, situation.next_timer):
        if candidate is not None and time < candidate:
            candidate, kind, name = time, kind_, name_
    watermark, released = before.watermark, before.released
    holder = before.holder
    if candidate is not None and (watermark is None or candidate > watermark):
        watermark = candidate
        holder = None
    since = situation.now
    if holder is not None and holder.kind == kind:
        passed = situation.now - (holder.seen or situation.now)
        since = min(holder.since + max(passed - in_milliseconds(_OBSERVED), 0), situation.now)
    holder = Holder(kind, name, since, situation.now)
    longest = max((in_milliseconds(each.max_hold) for each in settings.values()), default=0)
    if kind == "message" and watermark is not None and situation.now - holder.since >= longest:
        watermark, released = watermark + 1, released + 1
        holder = None
    future = before.future + sum(each.future for each in facts)
    return EventProgress(watermark, newest, waiting, idle, holder, released, future)


def _newest(
    before: EventProgress,
    facts: Iterable[EventTimes],
    settings: Mapping[str, EventTime],
    situation: Situation,
) -> dict[Partition, int]:
    """Return the newest event time of each partition of which a record was read.

    Partitions that are no longer read are left out: else the offsets would grow with each topic that comes and goes.
    """
    read = frozenset(situation.partitions)
    newest = {each: time for each, time in before.newest.items() if each in read}
    for part in facts:
        for each in part.newest:
            partition = Partition(each.ingress, each.topic, each.partition)
            if each.ingress in settings:
                newest[partition] = max(newest.get(partition, each.time), each.time)
    return newest


def without_event_time(before: EventProgress, facts: Iterable[EventTimes]) -> EventProgress:
    """Return the progress after micro-batches of a run whose ingresses declare no event time.

    Only messages that wait no longer change it. A later run may declare event time again: its watermark never falls.

    Args:
        before: the progress before the micro-batches.
        facts: the facts about event time that the micro-batches have reported.
    """
    return attrs.evolve(before, waiting=_waiting(before, facts))


def _waiting(before: EventProgress, facts: Iterable[EventTimes]) -> dict[int, int]:
    waiting = dict(before.waiting)
    for part in facts:
        for time, count in part.waiting.items():
            waiting[time] = waiting.get(time, 0) + count
    return {time: count for time, count in waiting.items() if count > 0}


def _holds(
    facts: Iterable[EventTimes], waiting: Mapping[int, int], next_timer: int | None
) -> Iterator[tuple[int, str, str]]:
    """Yield the event times at which messages hold the watermark, each with the kind and name of the holder.

    If two of these event times are equal, the caller uses the first one: that of waiting messages comes first.
    """
    if waiting:
        yield min(waiting), "waiting", ""
    for part in facts:
        if part.HasField("sent"):
            yield part.sent.time, "message", str(address_of(part.sent.target))
    if next_timer is not None:
        yield next_timer, "timer", ""


def _idle(
    newest: Mapping[Partition, int], settings: Mapping[str, EventTime], situation: Situation
) -> Iterator[Partition]:
    for partition, time in situation.caught_up.items():
        is_empty = situation.is_bounded and partition not in newest
        if is_empty or time >= in_milliseconds(settings[partition.ingress].idle):
            yield partition


def _of_partitions(
    values: Mapping[Partition, int],
    idle: Collection[Partition],
    settings: Mapping[str, EventTime],
    situation: Situation,
) -> tuple[int | None, str, str]:
    """Return the time up to which the partitions let the watermark rise, and the kind and name of what stops it there.

    The time is None if a partition for which the watermark waits has no record yet, or if all are idle and none
    has one. If all are idle, it is the newest time of all partitions; if the watermark follows the clock, it is
    later by the time for which they all have had no new record.
    """
    active = sorted(set(situation.partitions) - set(idle))
    unread = [each for each in active if each not in values]
    if unread:
        return None, "unread", str(unread[0])
    if active:
        slowest = min(active, key=lambda each: values[each])
        return values[slowest], "partition", str(slowest)
    if not values or not all(each.follows for each in settings.values()):
        return max(values.values(), default=None), "idle", ""
    return max(values.values()) + min(situation.caught_up.values()), "idle", ""
