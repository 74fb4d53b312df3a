# SPDX-License-Identifier: Apache-2.0
"""The event times of one task: those of its rows, and the facts from which the driver computes the watermark.

If no ingress of the application declares event time, each group of rows costs no more than one check.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from statefun.engine.address_values import AddressValues
from statefun.engine.effects import NO_TIME, Effects
from statefun.engine.failures import RETRY
from statefun.engine.groups import Columns, Group
from statefun.engine.record_routes import EventRoute, RecordRoutes
from statefun.engine.row_flags import REPLAYED
from statefun.protocol.runtime_pb2 import EventTimes, Outcome
from statefun.protocol.runtime_pb2 import Retry as RetriedMessage
from statefun.sdk.errors import FunctionError, RecordError, StatefunError
from statefun.sdk.event_fields import checked_timestamp

_ROUNDED = 1000
"""Waiting messages hold the watermark at whole seconds, so that the driver counts few different times."""
_STEPS = 64
"""The further a time is after the watermark, the more it is rounded: by a 64th of the distance at most."""


class _Partition(NamedTuple):
    ingress: str
    topic: str
    number: int


class TaskTimes:
    """Finds the event times of a task's rows, and collects facts about them for the driver's watermark.

    Args:
        routes: the routes of the application's records.
        watermark: the watermark of the micro-batch, in milliseconds since the epoch; None if there is none.
        begun: when the micro-batch began, in milliseconds since the epoch.
    """

    def __init__(self, routes: RecordRoutes, watermark: int | None, begun: int) -> None:
        self._routes = routes
        self._watermark = NO_TIME if watermark is None else watermark
        self._begun = begun
        self._columns: Columns | None = None
        """The rows whose event times were found last."""
        self._newest: dict[_Partition, int] = {}
        self._waiting = Counter[int]()
        self._future = 0
        self._effects: Effects | None = None

    def begin(self, group: Group, effects: Effects) -> None:
        """Find the event times of all rows that come with a group, unless they are found already."""
        columns = group.columns
        if columns is self._columns or columns.column is None:
            return
        self._effects = effects
        effects.watermark = self._watermark
        self._columns = columns
        times = list(columns.column("event_time"))
        if columns.has_own:
            self._find_retried(columns, times)
        routes = columns.routes()
        if any(route is not None for route in routes):
            topics, partitions = columns.column("topic"), columns.column("partition")
            places = zip(routes, topics, partitions, strict=True)
            for row, (number, topic, partition) in enumerate(places):
                if number is not None:
                    self._find(columns, times, row, (number, topic, partition))
        columns.times = times

    def _find(
        self, columns: Columns, times: list[int | None], row: int, place: tuple[Any, Any, Any]
    ) -> None:
        """Find the event time of the record in a row; keep this time if the record is the newest of its partition.

        Args:
            columns: the rows.
            times: the event times of all rows, in which that of the record is set. Until then, its item is the
                record's timestamp, or for a replayed record the event time in the dead letter, if any.
            row: the number of the row.
            place: the route, topic and partition of the record.
        """
        number, topic, partition = place
        is_replayed = bool(columns.flags[row] & REPLAYED)
        if is_replayed:
            if times[row] is not None:
                return  # the dead letter had it
            origin = columns.record(row)
            number = origin.route if origin is not None else 0
            times[row] = origin.timestamp if origin is not None else None
        route = self._routes.event_times.get(int(number))
        if route is None:
            times[row] = None
            return
        timestamp = times[row]
        if timestamp is None:
            return
        try:
            time = times[row] = record_time(route, timestamp, columns.value[row])
        except Exception as error:  # noqa: BLE001 - as below
            times[row] = None
            columns.untimed[row] = _untimed(route, error)
            return
        if is_replayed or time is None:
            return
        if time > self._begun + route.max_future:
            self._future += 1
            return
        key = _Partition(route.ingress, topic, int(partition))
        if self._newest.get(key, NO_TIME) < time:
            self._newest[key] = time

    def _find_retried(self, columns: Columns, times: list[int | None]) -> None:
        """Find the event times of the messages in retry envelopes.

        A record that could not be read, as a schema registry did not answer, has none yet. It is read again, and its
        envelope gets the time.
        """
        values: list[Any] | None = None
        for row, typename in enumerate(columns.typename):
            if typename != RETRY:
                continue
            again = RetriedMessage.FromString(columns.value[row])
            route = self._routes.event_times.get(again.record.route)
            if again.HasField("event_time"):
                times[row] = again.event_time
            elif route is None or not route.settings.field or not again.HasField("value"):
                times[row] = None
            else:
                try:
                    again.event_time = route.values.time_in(again.value, route.settings.field)
                except Exception as error:  # noqa: BLE001 - users' types may raise any exception
                    times[row], columns.untimed[row] = None, _untimed(route, error)
                    continue
                times[row] = again.event_time
                values = [*columns.value] if values is None else values
                values[row] = again.SerializeToString()
        if values is not None:
            columns.value = values

    def settle(self, group: Group) -> None:
        """Let the waiting messages of a handled group hold the watermark, as long as there are any."""
        values = group.values
        if values.held is not None or values.waits:
            self._hold(values, self._hold_of(group, values))

    def release(self, group: Group) -> None:
        """If no messages of a handled group wait any more, let the address hold the watermark no longer.

        A run whose ingresses declare no event time does only this for the watermark: a later run may declare it again.
        """
        if not group.values.waits:
            self._hold(group.values, None)

    def _hold(self, values: AddressValues, held: int | None) -> None:
        """Set the event time at which an address holds the watermark, and count the change for the driver."""
        if held != values.held:
            if values.held is not None:
                self._waiting[values.held] -= 1
            if held is not None:
                self._waiting[held] += 1
            values.hold(held)

    def _hold_of(self, group: Group, values: AddressValues) -> int | None:
        """Return the event time at which the waiting messages of a group hold the watermark; None if they do not."""
        call = values.under_way
        times = [
            each.event_time
            for each in map(
                RetriedMessage.FromString,
                (*values.waiting, *(() if call is None else call.messages)),
            )
            if each.HasField("event_time")
        ]
        if values.chunks:  # their messages are not at hand; a time that is too early does no harm
            if values.held is not None:
                times.append(values.held)
            columns = group.columns.times or ()
            times += [each for each in columns[group.start : group.end] if each is not None]
        holding = [each for each in times if each >= self._watermark]
        if not holding:
            return None
        oldest = min(holding)
        unit = _ROUNDED
        if self._watermark != NO_TIME:
            while unit * _STEPS * 2 <= oldest - self._watermark:
                unit *= 2
        return max(oldest // unit * unit, self._watermark)

    def report(self, counts: Outcome) -> None:
        """Add the facts about event times, from which the driver computes the watermark, to the task's outcome."""
        effects = self._effects
        found = EventTimes(future=self._future)
        for (ingress, topic, number), time in self._newest.items():
            found.newest.add(ingress=ingress, topic=topic, partition=number, time=time)
        if effects is not None and effects.oldest is not None:
            found.sent.time, found.sent.target = effects.oldest
        found.waiting.update({time: count for time, count in self._waiting.items() if count})
        if found.ByteSize():
            counts.event_times.CopyFrom(found)


def _untimed(route: EventRoute, error: Exception) -> StatefunError:
    """Return the error for a record whose event time cannot be read."""
    if type(error) is FunctionError:  # a service does not answer: the record may be valid
        return FunctionError(
            f"ingress {route.ingress}: the record cannot be read now: {error.message}"
        )
    shown = "its value is secret" if route.values.are_secret else error
    return RecordError(f"ingress {route.ingress}: the record has no event time: {shown}")


def record_time(route: EventRoute, timestamp: int, value: bytes | None) -> int | None:
    """Return the event time of a record: its timestamp, or the time in a field of its value.

    A record without a value (a tombstone) has no field, and so no event time.

    Raises:
        FunctionError: if a schema registry does not answer.
        Exception: if the field is missing, or is no time.
    """
    if not route.settings.field:
        return checked_timestamp(timestamp)
    if value is None:
        return None
    return route.values.time_in(value, route.settings.field)


def merged(parts: list[EventTimes]) -> EventTimes:
    """Merge the facts about event times that the tasks of a micro-batch have reported."""
    newest: dict[tuple[str, str, int], int] = {}
    waiting = Counter[int]()
    whole = EventTimes()
    for part in parts:
        whole.future += part.future
        for each in part.newest:
            key = each.ingress, each.topic, each.partition
            newest[key] = max(newest.get(key, NO_TIME), each.time)
        for time, count in part.waiting.items():
            waiting[time] += count
        if part.HasField("sent") and not (
            whole.HasField("sent") and whole.sent.time <= part.sent.time
        ):
            whole.sent.CopyFrom(part.sent)
    for (ingress, topic, number), time in sorted(newest.items()):
        whole.newest.add(ingress=ingress, topic=topic, partition=number, time=time)
    whole.waiting.update({time: count for time, count in waiting.items() if count})
    return whole
