# SPDX-License-Identifier: Apache-2.0
"""Describes exceptions that users' code raises, even if their own methods, such as ``__str__``, raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from statefun.sdk.address import Address
from statefun.sdk.errors import FunctionError, InvocationError, StatefunError, ValueDecodeError
from statefun.sdk.shortening import without_middle
from statefun.sdk.tracebacks import formatted, passes_users_code, place_of

T = TypeVar("T")

_MAX_TEXT = 10_000
"""The number of characters to show of an exception's text; some exceptions quote their input."""
_MAX_TRACEBACK = 8_000


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
    return "(its text cannot be shown)" if text is None else without_middle(text, _MAX_TEXT)


def line_of(error: BaseException) -> str:
    """Return an exception's class and its text or, without a text, the line of users' code that raised it.

    >>> line_of(KeyError("user")), line_of(TimeoutError())
    ("KeyError: 'user'", 'TimeoutError')
    """
    text = text_of(error)
    if text:
        return f"{class_name(error)}: {text}"
    place = _attempt(lambda: place_of(error))
    return f"{class_name(error)} in {place}" if place else class_name(error)


def traceback_of(error: BaseException, *, skip: int = 0) -> str:
    """Return an exception's traceback without the first ``skip`` frames and most frames of libraries.

    The traceback is empty for an error of statefun that users' code has not caused: the text of such
    an error is enough.
    """
    # isinstance would ask users' classes
    if issubclass(type(error), StatefunError) and not _attempt(lambda: passes_users_code(error)):
        return ""

    def described() -> str:
        frames = error.__traceback__
        for _ in range(skip):
            frames = frames.tb_next if frames else None
        return formatted(error, frames)

    return without_middle(_attempt(described) or f"{line_of(error)}\n", _MAX_TRACEBACK)


def deserializer_failed(name: str, target: Address, error: BaseException) -> InvocationError:
    """Return the error for a record on which a deserializer has failed.

    The error is a FunctionError if a service such as a schema registry has not answered: then the
    record may be valid. Otherwise the error is a ValueDecodeError.
    """
    if type(error) is ValueDecodeError:
        return error
    if type(error) is FunctionError:
        return FunctionError(f"a record for {target} cannot be read now: {error.message}")
    return ValueDecodeError(
        f"the deserializer {name} failed on a record for {target}: {line_of(error)}"
    )


def _attempt(describe: Callable[[], T]) -> T | None:
    """Return the result of ``describe``; None if it raises, as methods of users' exceptions may do."""
    try:
        return describe()
    except BaseException:  # noqa: BLE001 - also if they ask to exit
        return None
