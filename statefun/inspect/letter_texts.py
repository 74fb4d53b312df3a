# SPDX-License-Identifier: Apache-2.0
"""Dead letters as text: a row of a table, all parts of a letter, JSON, and values to edit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from statefun.inspect.dead_letter import DeadLetter
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
from statefun.sdk.types import Type, encoded

LETTER_COLUMNS = ("id", "time (UTC)", "address", "from", "error")
_WIDEST = 60
"""How many characters of a cell the table shows."""
_PRIMITIVES: Mapping[str, Type[Any]] = {
    each.typename: each for each in (BoolType, DoubleType, FloatType, IntType, LongType, StringType)
}
_TIMES = ("time", "timestamp")
_NUMBERS = ("partition", "offset", "attempts", "route")
_SHOWN = (
    *("time", "error-code", "error-type", "error-message", "target", "target-type", "traceback"),
    *("route", "encoded"),
)
"""Facts with their own lines, facts that other facts contain, and facts that only replays use."""
_ORIGIN = ("topic", "partition", "offset", "timestamp")


def row(letter: DeadLetter) -> Sequence[str]:
    """Return the cells of a letter in a table, safe to print."""
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
    """Return the text of the error, without the address: the table has a column for it."""
    text = facts.get("error-message", facts.get("error-type", "?"))
    target, typename = facts.get("target"), facts.get("target-type")
    return text.removeprefix(f"function {typename} failed at address {target}: ")


def _time(letter: DeadLetter, name: str) -> str:
    moment = letter.moment(name)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment else "-"


def in_full(letter: DeadLetter) -> Iterator[str]:
    """Yield the lines that show all parts of a letter, safe to print."""
    facts = letter.facts
    places = [f"{name} {facts[name]}" for name in _ORIGIN[:3] if name in facts]
    places += [f"written {_time(letter, 'timestamp')} UTC"] if "timestamp" in facts else []
    parts = {
        "time": f"{_time(letter, 'time')} UTC" if "time" in facts else None,
        "error": f"{facts.get('error-code', '?')} {facts.get('error-type', '?')}",
        "message": facts.get("error-message"),
        "address": facts.get("target"),
        "record": ", ".join(places) or None,
    }
    parts |= {name: facts[name] for name in facts if name not in {*_SHOWN, *_ORIGIN}}
    parts |= {f"header {name}": _content(value) for name, value in letter.headers}
    parts["key"] = _content(letter.key)
    parts["value"] = value_text(letter) or _content(letter.value)
    for name, text in parts.items():
        if text is not None:
            yield f"  {printable(name)}: {printable(text)}"
    if "traceback" in facts:
        yield "  traceback:"
        yield from (f"    {printable(line)}" for line in facts["traceback"].splitlines())


def as_json(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter as an object for JSON: facts by their names, and times in ISO 8601."""
    facts: dict[str, Any] = {
        name.replace("-", "_"): _fact(letter, name, text) for name, text in letter.facts.items()
    }
    return {
        "id": letter.id,
        **facts,
        "key": json_content(letter.key),
        "value": json_content(letter.value),
        "headers": [[name, json_content(value)] for name, value in letter.headers],
    }


def _fact(letter: DeadLetter, name: str, text: str) -> str | int:
    if name in _TIMES:
        moment = letter.moment(name)
        return moment.isoformat().replace("+00:00", "Z") if moment else text
    return int(text) if name in _NUMBERS and text.isdecimal() else text


def _content(content: bytes | str | None) -> str:
    """Return bytes in UTF-8 as text, other bytes as Python writes them, and ``-`` for None."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError:
        return repr(content)
    return "-" if text is None else text


def value_text(letter: DeadLetter) -> str | None:
    """Return the value of a letter as text; None if it has no value, or the value is not text.

    Texts stay as they are; values of statefun's other primitive types become JSON.
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
    """Return the bytes of a new value, in the type of the letter's value.

    Args:
        letter: the letter whose value is replaced.
        text: the new value, in the form of :func:`value_text`.

    Raises:
        ConfigurationError: if the new value is not of the letter's type.
    """
    type_ = _primitive(letter)
    if type_ is None:
        return text
    try:
        value = text.decode() if type_ is StringType else json.loads(text)
        return encoded(value, type_).value
    except ValueError as error:
        raise ConfigurationError(
            f"dead letter {letter.id}: the new value is not a {type_.typename}: {error}"
        ) from error


def _primitive(letter: DeadLetter) -> Type[Any] | None:
    """Return the primitive type of a letter's value; None for other types, and for records."""
    return None if letter.is_encoded else _PRIMITIVES.get(letter.facts.get("type", ""))
