# SPDX-License-Identifier: Apache-2.0
"""Describes exceptions of users' code, whose own methods may fail."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from statefun.sdk.address import Address
from statefun.sdk.errors import FunctionError, InvocationError, ValueDecodeError

_MAX_TEXT = 10_000
"""Characters of an exception's text: some exceptions quote their whole input."""
_MAX_TRACEBACK = 100_000


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class.

    >>> class_name(KeyError("user"))
    'KeyError'
    """
    return _attempt(lambda: str(type(error).__name__)) or "an exception without a name"


def text_of(error: object) -> str:
    """Return the text of an exception or of one of its arguments, cut if it is very long.

    >>> text_of(KeyError("user"))
    "'user'"
    """
    text = _attempt(lambda: str(error))
    return "(its text cannot be shown)" if text is None else _cut(text, _MAX_TEXT)


def line_of(error: BaseException) -> str:
    """Return the class of an exception, and its text.

    >>> line_of(KeyError("user"))
    "KeyError: 'user'"
    """
    return f"{class_name(error)}: {text_of(error)}"


def traceback_of(error: BaseException, *, skip: int = 0) -> str:
    """Return an exception's traceback as Python prints it, without its first frames."""

    def formatted() -> str:
        frames = error.__traceback__
        for _ in range(skip):
            frames = frames.tb_next if frames else None
        return "".join(traceback.format_exception(type(error), error, frames))

    return _cut(_attempt(formatted) or f"{line_of(error)}\n", _MAX_TRACEBACK)


def deserializer_failed(name: str, target: Address, error: BaseException) -> InvocationError:
    """Return the error of a record that a deserializer has failed on.

    If a service such as a schema registry does not answer, nothing is wrong with the record.
    """
    if type(error) is ValueDecodeError:
        return error
    if type(error) is FunctionError:
        return FunctionError(f"a record for {target} cannot be read now: {error.message}")
    return ValueDecodeError(
        f"the deserializer {name} failed on a record for {target}: {line_of(error)}"
    )


def _attempt(describe: Callable[[], str]) -> str | None:
    """Return a description, or None if a method of the user's class fails."""
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
