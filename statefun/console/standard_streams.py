# SPDX-License-Identifier: Apache-2.0
"""Lets a command end well whatever its standard streams are: closed, full, or with an encoding that lacks characters."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys

_ESCAPES = "statefun-escapes"
"""The name of the handler for characters that an encoding lacks."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""The errors of a file that cannot take more."""


def prepare_streams() -> None:
    """Let standard output and standard error take all characters, and nothing be written elsewhere if one is closed."""
    codecs.register_error(_ESCAPES, _escaped)
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)


def output_failure(known: OSError | None = None) -> str | None:
    """Return a sentence if standard output cannot be written, such as on a full disk; else None.

    Args:
        known: an exception that standard output may have raised. If it has no buffer, nothing else shows its failure.
    """
    failure = known if known is not None and _is_of_output(known) else None
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # its reader has ended, which is no failure
        give_up_output()
    except OSError as error:
        give_up_output()
        failure = error
    if failure is None:
        return None
    return f"standard output cannot be written: {failure.strerror or failure}"


def _is_of_output(error: OSError) -> bool:
    """Return whether an exception may be one of standard output: such a one names no file."""
    return error.filename is None and error.errno in _FULL


def give_up_output() -> None:
    """Let what standard output has not passed on go nowhere: Python would write it at its end, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _nowhere() -> io.TextIOWrapper:
    """Return a stream for a closed one; it takes the file descriptor, so that no other file gets it."""
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it stays open


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Return characters that an encoding lacks as escapes of JSON, which a document in JSON may have, too.

    >>> _escaped(UnicodeEncodeError("latin-1", "Łódź", 0, 1, "ordinal not in range"))
    ('\\u0141', 1)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
