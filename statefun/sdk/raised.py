# SPDX-License-Identifier: Apache-2.0
"""Describing what users' code has raised, which may fail at everything but being an exception."""

from __future__ import annotations

import traceback
from collections.abc import Callable

_MAX_TEXT = 10_000
"""Characters of an exception's text: some quote all that they were given."""
_MAX_TRACEBACK = 100_000


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class.

    >>> class_name(KeyError("user"))
    'KeyError'
    """
    return _attempt(lambda: str(type(error).__name__)) or "an exception without a name"


def text_of(error: object) -> str:
    """Return the text of an exception, or of what it holds, cut if it is very long.

    >>> text_of(KeyError("user"))
    "'user'"
    """
    text = _attempt(lambda: str(error))
    return "(its text cannot be shown)" if text is None else _cut(text, _MAX_TEXT)


def traceback_of(error: BaseException, *, skip: int = 0) -> str:
    """Return what Python would print of an exception, without its first frames."""

    def formatted() -> str:
        frames = error.__traceback__
        for _ in range(skip):
            frames = frames.tb_next if frames else None
        return "".join(traceback.format_exception(type(error), error, frames))

    return _cut(_attempt(formatted) or f"{class_name(error)}: {text_of(error)}\n", _MAX_TRACEBACK)


def _attempt(describe: Callable[[], str]) -> str | None:
    """Return a description, or None if making it fails: it calls methods of the user's classes."""
    try:
        return describe()
    except BaseException:  # noqa: BLE001 - also if they ask to exit
        return None


def _cut(text: str, length: int) -> str:
    """Leave out the middle of a long text."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]} ... ({len(text) - 2 * half:,} characters left out) ... {text[-half:]}"
