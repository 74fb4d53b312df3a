# SPDX-License-Identifier: Apache-2.0
"""The logger of a function call: its lines carry the address, the trace and fields."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import attrs

from statefun.sdk.address import Address

LOGGED_CALL = "statefun_call"
"""The name of the attribute of a ``logging.LogRecord`` that has the :class:`LoggedCall`."""

_TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-")
_FRAMES_TO_CALLER = 3
"""The number of frames from Python's ``Logger.log`` up to the code that logs, whose own frame counts."""


@attrs.frozen
class LoggedCall:
    """The call that has logged a line, and the fields of the line."""

    address: Address
    trace_id: str | None
    """The id of the trace that the message is part of, 32 hexadecimal digits; None if there is none."""
    fields: Mapping[str, object]


class FunctionLogger:
    """Logs lines of a function call, with fields: ``ctx.logger``.

    The lines go to Python's logger whose name is the typename of the function, so levels and handlers are set
    as usual: ``logging.getLogger("com.example.fns/payment").setLevel(logging.DEBUG)``. Without any level, warnings
    and errors are shown. A failure to log does not fail the function.

    Args:
        address: the address whose function logs.
        trace: the trace headers of the message, as ``name=value``, one per line; None if it has none.
        logger: the logger that gets the lines.

    >>> def charge(ctx, message):
    ...     ctx.logger.info("charged", amount=3, currency="EUR")
    """

    __slots__ = ("_address", "_logger", "_trace")

    def __init__(self, address: Address, trace: str | None, logger: logging.Logger) -> None:
        self._address = address
        self._trace = trace
        self._logger = logger

    def debug(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log details, which are only shown where the level ``DEBUG`` is set.

        Args:
            message: the text; it may have placeholders, as in ``"charged %s"``.
            arguments: the values of the placeholders.
            fields: values that the line shows after its text, or in JSON as ``fields``.
        """
        self._log(logging.DEBUG, message, arguments, fields)

    def info(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log an event that is expected; see :meth:`debug` for the arguments."""
        self._log(logging.INFO, message, arguments, fields)

    def warning(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log an event that somebody should know of; see :meth:`debug` for the arguments."""
        self._log(logging.WARNING, message, arguments, fields)

    def error(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log a failure; see :meth:`debug` for the arguments."""
        self._log(logging.ERROR, message, arguments, fields)

    def exception(self, message: str, /, *arguments: object, **fields: object) -> None:
        """Log the exception that is handled at present, with its traceback; see :meth:`debug` for the arguments."""
        self._log(logging.ERROR, message, arguments, fields, has_exception=True)

    def is_enabled_for(self, level: int) -> bool:
        """Return whether lines of a level of Python's ``logging`` are shown."""
        return self._logger.isEnabledFor(level)

    def _log(
        self,
        level: int,
        message: str,
        arguments: tuple[object, ...],
        fields: Mapping[str, object],
        *,
        has_exception: bool = False,
    ) -> None:
        if self._logger.isEnabledFor(level):
            call = LoggedCall(self._address, _trace_id(self._trace), fields)
            self._logger.log(
                level,
                message,
                *arguments,
                exc_info=has_exception,
                stacklevel=_FRAMES_TO_CALLER,
                extra={LOGGED_CALL: call},
            )


def _trace_id(trace: str | None) -> str | None:
    """Return the trace id of a header ``traceparent`` (W3C Trace Context, section 3.2)."""
    for line in (trace or "").split("\n"):
        name, _, text = line.partition("=")
        if name == "traceparent":
            found = _TRACEPARENT.match(text)
            return found[1] if found else None
    return None
