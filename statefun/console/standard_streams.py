# SPDX-License-Identifier: Apache-2.0
"""Lets a command end well whatever its standard streams are: closed, full, or with an encoding that lacks characters."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from typing import Any

_ESCAPES = "statefun-escapes"
"""The name of the handler for characters that an encoding lacks."""
_LAST = 2
"""The file descriptor of standard error, the last one of the standard streams."""


class _Output(io.FileIO):
    """Standard output; it remembers its failures, which look like those of any file on a full disk."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.failures: list[OSError] = []

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self.failures.append(error)
            raise


def prepare_streams() -> None:
    """Let standard output and standard error take all characters, and nothing be written elsewhere if one is closed."""
    codecs.register_error(_ESCAPES, _escaped)
    _occupy_closed()
    if sys.stdout is None:
        sys.stdout = _nowhere()
    elif sys.stdout is sys.__stdout__ and type(_raw(sys.stdout)) is io.FileIO:
        sys.stdout = _remembering(sys.stdout)
    if sys.stderr is None:
        sys.stderr = _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)


def output_failure() -> str | None:
    """Return a sentence if standard output cannot be written, such as on a full disk; else None."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # its reader has ended, which is no failure
        give_up_output()
    except OSError:
        give_up_output()
    failures = _failures()
    if not failures:
        return None
    return f"standard output cannot be written: {failures[-1].strerror or failures[-1]}"


def is_of_output(error: BaseException | None) -> bool:
    """Return whether an error is a failure of standard output, or was caused by one."""
    while error is not None:
        if any(error is each for each in _failures()):
            return True
        error = error.__cause__ or error.__context__
    return False


def give_up_output() -> None:
    """Let what standard output has not passed on go nowhere: Python would write it at its end, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failures() -> list[OSError]:
    """Return what has kept standard output from being written, except that its reader has ended."""
    raw = _raw(sys.stdout)
    failures = raw.failures if isinstance(raw, _Output) else []
    return [each for each in failures if not isinstance(each, BrokenPipeError)]


def _raw(stream: object) -> object:
    """Return the file below a text stream, whether there is a buffer between them or not."""
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _remembering(stream: Any) -> io.TextIOWrapper:
    """Return a stream that writes where another one does, in the same way, and remembers its failures."""
    stream.flush()
    output = _Output(stream.fileno())
    is_buffered = isinstance(stream.buffer, io.BufferedWriter)
    return io.TextIOWrapper(
        io.BufferedWriter(output) if is_buffered else output,
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _occupy_closed() -> None:
    """Open the null device for each closed standard stream: another file would get its descriptor, and its output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _nowhere() -> io.TextIOWrapper:
    """Return a stream for a closed one."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it stays open


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Return characters that an encoding lacks as escapes of JSON, which a document in JSON may have, too.

    >>> _escaped(UnicodeEncodeError("latin-1", "Łódź", 0, 1, "ordinal not in range"))
    ('\\u0141', 1)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
