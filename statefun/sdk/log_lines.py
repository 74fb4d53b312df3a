# SPDX-License-Identifier: Apache-2.0
"""Formats log records of functions and of the runtime: as lines of text, or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial

from statefun.sdk.address import Address
from statefun.sdk.current import current_address
from statefun.sdk.function_logger import LOGGED_CALL, LoggedCall
from statefun.sdk.log_limits import LogLimit
from statefun.sdk.printable import printable

_LEFT_OUT = "statefun_left_out"
"""The name of the attribute of a log record that has the number of lines left out before it."""
_KEPT = "\t"
"""The only character of messages that is shown though it is not printable: a line end would begin another line."""
_LINES, _INTERVAL = 100, timedelta(seconds=10)


class TextLines(logging.Formatter):
    """Formats a record as text that names the address, and has the fields after the message.

    The attribute ``batch`` is the number of the micro-batch that calls functions at present; None outside of one.
    """

    batch: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a log record."""
        call, address = _call_of(record)
        batch = "" if self.batch is None else f" (batch {self.batch})"
        place = "" if address is None else f" {printable(str(address))}{batch}"
        name = "" if call else f" {record.name}"
        fields = "" if call is None else _fields_as_text(call.fields)
        left_out = getattr(record, _LEFT_OUT, 0)
        more = f" ({left_out} lines from here were left out before)" if left_out else ""
        text = f"{record.levelname}{place}{name}: {printable(record.getMessage(), keep=_KEPT)}{fields}{more}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            text += "\n" + self.formatStack(record.stack_info)
        return text


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON.

    Its members are ``time`` (ISO 8601, UTC), ``level``, ``logger`` and ``message``, and where there are any,
    ``function``, ``id``, ``batch``, ``trace_id``, ``fields``, ``exception``, ``stack`` and ``left_out``.
    """

    batch: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the JSON of a log record."""
        call, address = _call_of(record)
        time = datetime.fromtimestamp(record.created, timezone.utc)
        members: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if address is not None:
            members |= {"function": str(address.typename), "id": address.id}
            if self.batch is not None:
                members["batch"] = self.batch
        if call is not None:
            if call.trace_id is not None:
                members["trace_id"] = call.trace_id
            if call.fields:
                members["fields"] = _fields_for_json(call.fields)
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            members["stack"] = self.formatStack(record.stack_info)
        left_out = getattr(record, _LEFT_OUT, 0)
        if left_out:
            members["left_out"] = left_out
        return json.dumps(members)


class FunctionLogLimit(logging.Filter):
    """Leaves out lines of ``ctx.logger`` if one place in the code logs more than 100 in 10 seconds.

    The next line from the place shows how many lines were left out.
    """

    def __init__(self, limit: LogLimit | None = None) -> None:
        super().__init__()
        self._limit = limit or LogLimit(_INTERVAL, _LINES)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is shown."""
        if not hasattr(record, LOGGED_CALL):
            return True
        left_out = self._limit.passed(f"{record.pathname}:{record.lineno}")
        if left_out:
            setattr(record, _LEFT_OUT, left_out)
        return left_out is not None

    def take_left_out(self) -> list[tuple[str, int]]:
        """Return each place that has stopped logging after lines were left out, with the number of these lines."""
        return self._limit.take_left_out()


def _call_of(record: logging.LogRecord) -> tuple[LoggedCall | None, Address | None]:
    call: LoggedCall | None = getattr(record, LOGGED_CALL, None)
    return call, current_address.get() if call is None else call.address


def _fields_as_text(fields: Mapping[str, object]) -> str:
    return "".join(f" {printable(name)}={_value_as_text(value)}" for name, value in fields.items())


def _value_as_text(value: object) -> str:
    """Return a value as one word: text with other characters than letters and digits is quoted."""
    text = _shown_by(str, value)
    if isinstance(value, (int, float)) or value is None or text.isalnum():
        return text
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)


def _fields_for_json(fields: Mapping[str, object]) -> object:
    """Return fields that JSON can hold: other objects become their ``repr`` or, if that fails, all values do."""
    show = partial(_shown_by, repr)
    try:
        return json.loads(json.dumps(fields, default=show, allow_nan=False))
    except (ValueError, TypeError, RecursionError):
        return {name: show(value) for name, value in fields.items()}


def _shown_by(show: Callable[[object], str], value: object) -> str:
    """Return the text of a value; if the user's method for it fails, say so, as the line must not be lost."""
    try:
        return show(value)
    except Exception as error:  # noqa: BLE001 - any exception of the user's method
        return f"({type(value).__name__} that cannot be shown: {type(error).__name__})"
