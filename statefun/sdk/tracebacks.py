# SPDX-License-Identifier: Apache-2.0
"""Formats tracebacks so that the lines of users' own code are easy to find.

Most frames of a deep traceback are frames of libraries. Of consecutive frames of libraries only the
last two are shown, after a line with the number of hidden frames. Frames of users' code are all shown,
except for recursions.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any

from statefun.sdk.shortening import without_middle

_INSTALLED = ("site-packages", "dist-packages")
_STANDARD_LIBRARY = PurePath(sysconfig.get_paths()["stdlib"])
_STATEFUN = PurePath(__file__).parents[1]
_LIBRARY_FRAMES = 2
"""How many consecutive frames of libraries are shown: the last ones, which are near the error."""
_USER_FRAMES = 20
"""How many frames are shown from each end of a long sequence of users' frames, such as a recursion."""
_PIECE = 1_000
"""The number of characters to show of a frame or of an exception's text, which may be very long."""


def formatted(error: BaseException, frames: TracebackType | None) -> str:
    """Return an exception's traceback as Python prints it, without most frames of libraries.

    Args:
        error: the exception; its causes and contexts are included.
        frames: the exception's frames, beginning with the first frame to show.
    """
    whole = traceback.TracebackException(type(error), error, frames)
    own = _own_library(whole.stack)
    pending: list[traceback.TracebackException | None] = [whole]
    visited = set()
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in visited:
            visited.add(id(each))
            each.stack = _Frames(each.stack, own)
            pending += [each.__cause__, each.__context__, *_members(each)]
    return "".join(without_middle(piece, _PIECE) for piece in whole.format())


def place_of(error: BaseException) -> str:
    """Return the innermost line of users' code in an exception's traceback; empty without such a line.

    >>> place_of(ValueError())
    ''
    """
    users = _users_frames(error.__traceback__)
    if not users:
        return ""
    file, line = Path(users[-1].filename).name, users[-1].line
    where = f"{file}, line {users[-1].lineno}, in {users[-1].name}"
    return f"{where}: {without_middle(line, _PIECE)}" if line else where


def passes_users_code(error: BaseException) -> bool:
    """Return whether an exception, or one of its causes, has a frame of users' code.

    >>> passes_users_code(ValueError())
    False
    """
    last: BaseException | None = error
    visited = set[int]()
    while last is not None and id(last) not in visited:
        if _users_frames(last.__traceback__):
            return True
        visited.add(id(last))
        last = last.__cause__
    return False


class _Frames(traceback.StackSummary):
    """The frames of an exception; when formatted, most frames of libraries become a line that counts them."""

    def __init__(self, frames: traceback.StackSummary, own: str | None) -> None:
        super().__init__(frames)
        self._own = own

    def format(self, **options: Any) -> list[str]:
        """Return the lines of the frames, as Python formats them."""
        return list(self._lines(options))

    def _lines(self, options: dict[str, Any]) -> Iterator[str]:
        for is_own, run in groupby(self, lambda frame: _library(frame) in {self._own, None}):
            frames = list(run)
            first, last = (_USER_FRAMES, _USER_FRAMES) if is_own else (0, _LIBRARY_FRAMES)
            hidden_frames = frames[first:-last]
            if len(hidden_frames) == 1:  # the line that counts them would be as long
                first, hidden_frames = first + 1, []
            yield from _formatted_by_python(frames[:first], options)
            if hidden_frames:
                names = dict.fromkeys(filter(None, map(_library, hidden_frames)))
                of = "" if is_own else f" of {', '.join(names)}"
                yield f"  ... {len(hidden_frames)} frames{of}\n"
            yield from _formatted_by_python(frames[first:][-last:], options)


def _members(error: traceback.TracebackException) -> Iterable[traceback.TracebackException]:
    """Return the members of an exception group, a class of Python 3.11; empty for another exception."""
    return getattr(error, "exceptions", None) or ()


def _formatted_by_python(
    frames: list[traceback.FrameSummary], options: dict[str, Any]
) -> list[str]:
    return traceback.StackSummary.from_list(frames).format(**options)


def _users_frames(frames: TracebackType | None) -> list[traceback.FrameSummary]:
    stack = traceback.extract_tb(frames)
    own = _own_library(stack)
    return [frame for frame in stack if _library(frame) in {own, None}]


def _own_library(frames: traceback.StackSummary) -> str | None:
    """Return the library whose frames count as users' code: that of the first frame outside of statefun.

    The result is None if the file of that frame is in no library.
    """
    return next((name for name in map(_library, frames) if name != _STATEFUN.name), None)


def is_of_statefun(file: PurePath) -> bool:
    """Return whether a frame's file is one of statefun."""
    # The frames of compiled modules have paths that begin with the package.
    return file.is_relative_to(_STATEFUN) or file.is_relative_to(_STATEFUN.name)


def _library(frame: traceback.FrameSummary) -> str | None:
    """Return the name of the library that a frame is in; None if the frame is in no library."""
    file = PurePath(frame.filename)
    for place, part in enumerate(file.parts[:-1]):
        if part in _INSTALLED:
            return file.parts[place + 1].removesuffix(".py")
    if is_of_statefun(file):
        return _STATEFUN.name
    if file.is_relative_to(_STANDARD_LIBRARY):
        return file.relative_to(_STANDARD_LIBRARY).parts[0].removesuffix(".py")
    return "Python" if frame.filename.startswith("<frozen ") else None
