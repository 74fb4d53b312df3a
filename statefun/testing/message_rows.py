# SPDX-License-Identifier: Apache-2.0
"""Messages that are sent but not handled yet, as rows in memory that the engine reads."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from statefun.engine.address_keys import SEPARATOR
from statefun.engine.groups import COLUMNS, Columns
from statefun.engine.record_keys import REJECTION_NAMESPACE
from statefun.engine.record_routes import route_number
from statefun.engine.row_flags import ENCODED, KEYLESS
from statefun.module.topic_routes import TopicRoute
from statefun.sdk.address import TypeName
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.record import KafkaRecord
from statefun.sdk.times import to_epoch_millis
from statefun.sdk.tracing import TRACE_HEADERS
from statefun.testing.arriving import id_of_record


class MessageRow(NamedTuple):
    """A message that is sent to an address but not handled yet."""

    target: bytes
    """The encoded address of the target."""
    caller: bytes | None
    """The encoded address of the caller; None if no function has sent the message."""
    typename: str
    value: bytes | None
    trace: str | None = None
    event_time: int | None = None
    """The event time of a message between functions, in milliseconds since the epoch; None if it has none."""
    flags: int = 0
    """The row's flags: bits that the module ``row_flags`` of the engine defines."""
    record: KafkaRecord | None = None
    """The ingress record that became the message; None if the message was not a record."""
    key: bytes | None = None
    """The record's key; None if the key is the target's id."""
    route: int | None = None
    """The number of the route through which the record was read; None if there is no record."""

    def cell(self, name: str) -> Any:
        """Return the row's value in a column about records; None if the message was not a record."""
        record = self.record
        if record is None:
            return self.event_time if name == "event_time" else None
        match name:
            case "timestamp" | "event_time":
                return to_epoch_millis(record.timestamp)
            case "headers":
                return self._headers()
            case "key":
                return self.key
            case "route":
                return self.route
            case _:
                return getattr(record, name)

    def _headers(self) -> str:
        """Return the headers of the record as Spark's ``to_json`` writes them."""
        headers: list[dict[str, str]] = []
        for name, value in self.record.headers if self.record else ():
            header = {"key": name}
            if value is not None:
                header["value"] = b64encode(value).decode()
            headers.append(header)
        return json.dumps(headers)


def columns_of(rows: Sequence[MessageRow]) -> Columns:
    """Convert rows to columns, which the engine reads."""
    return Columns(
        *([getattr(row, name) for row in rows] for name in COLUMNS),
        cell=lambda name, row: rows[row].cell(name),
        column=lambda name: [row.cell(name) for row in rows],
    )


def rows_of_record(
    ingress: TypeName, record: KafkaRecord, route: TopicRoute, functions: StatefulFunctions
) -> Iterator[MessageRow]:
    """Yield a row for each target of a record that an ingress has read.

    Raises:
        FunctionError: as for :func:`id_of_record`.
    """
    id_, reason = id_of_record(record, route)
    # Records without an id are collected per partition.
    place = f"{record.topic}/{record.partition}" if id_ is None else id_
    is_id = id_ is not None and id_.encode() == record.key
    flags = ENCODED if route.deserializer is not None else 0
    row = MessageRow(
        b"",
        None,
        str(route.value_type),
        record.value,
        _trace_of(record),
        None,
        flags | (KEYLESS if route.changes_key and record.key is None else 0),
        record,
        None if is_id else record.key,
        route_number(ingress, route),
    )
    targets = [f"{REJECTION_NAMESPACE}/{reason}"] if reason else map(str, route.targets)
    for typename in map(functions.stored_name, targets):
        yield row._replace(target=place.encode() + SEPARATOR + typename.encode())


def _trace_of(record: KafkaRecord) -> str | None:
    """Return the trace-context headers of a record, ``name=value``, one per line; None if there are none."""
    lines = []
    for name, value in record.headers:
        if name in TRACE_HEADERS and value is not None and b"\n" not in value:
            with suppress(UnicodeDecodeError):
                lines.append(f"{name}={value.decode()}")
    return "\n".join(lines) or None
