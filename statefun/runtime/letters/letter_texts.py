# SPDX-License-Identifier: Apache-2.0
"""Shows dead letters as rows of a table, in full or as JSON, and converts their values for editing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from statefun.runtime.letters.dead_letter import DeadLetter
from statefun.sdk.encoding import encoded
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.primitives import (
    BoolType,
    DoubleType,
    FloatType,
    IntType,
    LongType,
    StringType,
)
from statefun.sdk.printable import json_content, printable
from statefun.sdk.secrecy import SECRET
from statefun.sdk.types import Type

LETTER_COLUMNS = ("id", "time (UTC)", "address", "from", "error")
_WIDEST = 60
"""How many characters of a cell the table shows at most."""
_PRIMITIVES: Mapping[str, Type[Any]] = {
    each.typename: each for each in (BoolType, DoubleType, FloatType, IntType, LongType, StringType)
}
_TIMES = ("time", "timestamp", "event-time")
_NUMBERS = ("partition", "offset", "attempts", "route")
_SHOWN = (
    *("time", "error-code", "error-type", "error-message", "target", "target-type", "traceback"),
    *("route", "encoded", "secret", "event-time"),
)
"""Facts that :func:`in_full` does not list among the remaining facts.

They have lines of their own, or are part of another fact, or are only needed for replays.
"""
_ORIGIN = ("topic", "partition", "offset", "timestamp")


def row(letter: DeadLetter) -> Sequence[str]:
    """Return the cells of a letter in a table, without control characters."""
    facts = letter.facts
    record = "/".join(facts[name] for name in _ORIGIN[:3] if name in facts)
    cells = (
        letter.id,
        _time(letter, "time"),
        facts.get("target", "-"),
        record or facts.get("caller", "-"),
        f"{facts.get('error-code', '?')} {_reason(facts)}",
    )
    return tuple(printable(cell, _WIDEST) for cell in cells)


def _reason(facts: dict[str, str]) -> str:
    """Return the error text of a letter, without the address, which has a column of its own."""
    text = facts.get("error-message", facts.get("error-type", "?"))
    target, typename = facts.get("target"), facts.get("target-type")
    return text.removeprefix(f"function {typename} failed at address {target}: ")


def _time(letter: DeadLetter, name: str) -> str:
    moment = letter.moment(name)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else "-"


def in_full(letter: DeadLetter) -> Iterator[str]:
    """Yield lines that show all parts of a letter, without control characters."""
    facts = letter.facts
    places = [f"{name} {facts[name]}" for name in _ORIGIN[:3] if name in facts]
    places += [f"written {_time(letter, 'timestamp')} UTC"] if "timestamp" in facts else []
    parts = {
        "time": f"{_time(letter, 'time')} UTC" if "time" in facts else None,
        "error": f"{facts.get('error-code', '?')} {facts.get('error-type', '?')}",
        "message": facts.get("error-message"),
        "address": facts.get("target"),
        "record": ", ".join(places) or None,
        "event time": f"{_time(letter, 'event-time')} UTC" if "event-time" in facts else None,
    }
    parts |= {name: facts[name] for name in facts if name not in {*_SHOWN, *_ORIGIN}}
    parts |= {f"header {name}": _content(value) for name, value in letter.headers}
    parts["key"] = _content(letter.key)
    parts["value"] = SECRET if letter.is_secret else value_text(letter) or _content(letter.value)
    for name, text in parts.items():
        if text is not None:
            yield f"  {printable(name)}: {printable(text)}"
    if "traceback" in facts:
        yield "  traceback:"
        yield from (f"    {printable(line)}" for line in facts["traceback"].splitlines())


def as_json(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as a dict for JSON: its key, value and headers, and where, when and why it failed.

    Times are in ISO 8601. A value that must not be shown is None.
    """
    facts: dict[str, Any] = {
        name.replace("-", "_"): _fact(letter, name, text) for name, text in letter.facts.items()
    }
    return {
        "id": letter.id,
        **facts,
        "key": json_content(letter.key),
        "value": None if letter.is_secret else json_content(letter.value),
        "headers": [[name, json_content(value)] for name, value in letter.headers],
    }


def _fact(letter: DeadLetter, name: str, text: str) -> str | int:
    if name in _TIMES:
        moment = letter.moment(name)
        return moment.isoformat().replace("+00:00", "Z") if moment else text
    return int(text) if name in _NUMBERS and text.isdecimal() else text


def _content(content: bytes | str | None) -> str:
    """Return a key or value as text: UTF-8 decoded, other bytes as Python's repr, and ``-`` for None."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError:
        return repr(content)
    return "-" if text is None else text


def value_text(letter: DeadLetter) -> str | None:
    """Return the value of a letter as text that a user can edit; None if it cannot be shown as text.

    A text stays as it is; a value of another primitive type, such as a number, becomes JSON.
    """
    if letter.value is None:
        return None
    type_ = _primitive(letter)
    try:
        if type_ is None:
            return letter.value.decode()
        value = type_.serializer().deserialize(letter.value)
    except Exception:  # noqa: BLE001 - the bytes may be anything
        return None
    return value if isinstance(value, str) else json.dumps(value)


def value_of(letter: DeadLetter, text: bytes) -> bytes:
    """Encode a new value for a letter, in the type of the letter's present value.

    Args:
        letter: the letter whose value is replaced.
        text: the new value, in the form of :func:`value_text`.

    Raises:
        ConfigurationError: if the new value is not of this type.
    """
    type_ = _primitive(letter)
    if type_ is None:
        return text
    try:
        value = text.decode() if type_ is StringType else json.loads(text)
        return encoded(value, type_).value
    except ValueError as error:
        raise ConfigurationError(
            f"dead letter {letter.id}: the new value must be of type {type_.typename}: {error}"
        ) from error


def _primitive(letter: DeadLetter) -> Type[Any] | None:
    """Return the primitive type of a letter's value.

    None if the value has another type, or is that of a record that no deserializer has decoded.
    """
    return None if letter.is_encoded else _PRIMITIVES.get(letter.facts.get("type", ""))
