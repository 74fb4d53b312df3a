# SPDX-License-Identifier: Apache-2.0
"""Shows what a checkpoint says about addresses, as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from statefun.runtime.stored.address_report import AddressReport, PendingMessage, StoredValue
from statefun.runtime.stored.plain_json import plain_json
from statefun.runtime.stored.typed_values import Decoded
from statefun.runtime.terminal.table import counted
from statefun.sdk.printable import printable
from statefun.sdk.secrecy import SECRET
from statefun.sdk.times import nearest_date

_WIDEST = 100
"""How many characters of a value a table shows at most."""
_SHORT = 40
"""How many characters of a value the list of addresses shows at most."""

Section = tuple[str, Sequence[Sequence[str]]]
"""A heading, and the rows of a table; the first row has the names of the columns."""


def shown(decoded: Decoded, limit: int = _WIDEST) -> str:
    """Return a value as text of one line: a text as it is, bytes as Python shows them, other values as JSON.

    >>> shown(Decoded(7)), shown(Decoded("Ada")), shown(Decoded(b"x", "it does not decode as a/b: ..."))
    ('7', 'Ada', "b'x' (it does not decode as a/b: ...)")
    """
    if decoded.is_secret:
        return SECRET
    value = decoded.value
    if value is None:
        text = "-"
    elif isinstance(value, bytes):
        text = repr(value)
    else:
        text = (
            value if isinstance(value, str) else json.dumps(plain_json(value), ensure_ascii=False)
        )
    reason = "" if decoded.problem is None else f" ({printable(decoded.problem)})"
    return printable(text, limit) + reason


def values_line(values: Sequence[StoredValue]) -> str:
    """Return the values of an address in one line."""
    return (
        ", ".join(f"{printable(each.name)}={shown(each.decoded, _SHORT)}" for each in values) or "-"
    )


def moment(millis: int) -> str:
    """Return a time in milliseconds since the epoch as text, in UTC; ``-`` for 0.

    >>> moment(1_000_000_000_000)
    '2001-09-09 01:46:40'
    >>> moment(2**63 - 1)
    '9999-12-31 23:59:59'
    """
    return f"{nearest_date(millis):%Y-%m-%d %H:%M:%S}" if millis else "-"


def sections(report: AddressReport, now: int) -> Iterator[Section]:
    """Yield the parts of a report that are not empty, each as a heading and a table.

    Args:
        report: the report.
        now: the present time in milliseconds since the epoch: values that expire before it have expired.
    """
    if report.values:
        rows: list[Sequence[str]] = [("name", "type", "bytes", "expires (UTC)", "value")]
        for value in report.values:
            is_over = " expired" if 0 < value.expires <= now else ""
            expires = f"{moment(value.expires)}{is_over}"
            typename, size = printable(value.typename), _size(value.size)
            rows.append((printable(value.name), typename, size, expires, shown(value.decoded)))
        yield "values", rows
    if report.call is not None:
        heading = (
            f"call under way since {moment(report.call.since)} UTC, attempt {report.call.attempt}"
        )
        yield heading, _messages(report.call.messages)
    if report.waiting:
        until = f", until {moment(report.waiting_until)} UTC" if report.waiting_until else ""
        yield f"{counted(len(report.waiting), 'waiting message')}{until}", _messages(report.waiting)
    if report.timers:
        rows = [("due (UTC)", "from", "type", "bytes", "token", "value")]
        rows += [
            (_due(each), *_head(each), printable(each.token) or "-", shown(each.decoded))
            for each in report.timers
        ]
        yield counted(len(report.timers), "pending timer"), rows
    if report.undelivered:
        count = counted(len(report.undelivered), "message")
        yield f"{count} on the way", _messages(report.undelivered, "statefun send")


def _due(timer: PendingMessage) -> str:
    return f"{moment(timer.due)}{' event time' if timer.in_event_time else ''}"


def _messages(
    messages: Sequence[PendingMessage], outside: str = "an ingress"
) -> Sequence[Sequence[str]]:
    rows = [(*_head(each, outside), str(each.attempts), shown(each.decoded)) for each in messages]
    return [("from", "type", "bytes", "attempts", "value"), *rows]


def _head(message: PendingMessage, outside: str = "an ingress") -> tuple[str, str, str]:
    """Return the cells with the sender, type and size of a message; ``outside`` stands for a missing caller."""
    caller = outside if message.caller is None else printable(str(message.caller))
    return caller, printable(message.typename), _size(message.size)


def _size(size: int | None) -> str:
    return "-" if size is None else f"{size:,}"
