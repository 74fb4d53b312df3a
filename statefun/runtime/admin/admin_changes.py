# SPDX-License-Identifier: Apache-2.0
"""Changes that clients of the admin API make in a running application."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from statefun.engine.address_keys import address_key
from statefun.runtime.admin.admin_views import AdminViews
from statefun.runtime.checkpoint.orders import Order
from statefun.runtime.checkpoint.pauses import Pausable, change_paused
from statefun.runtime.checkpoint.sent_messages import put_message
from statefun.runtime.control import Control
from statefun.runtime.http_server import RefusedError
from statefun.runtime.posted_messages import PostedMessages
from statefun.runtime.stored.known_values import KnownValues, nearest
from statefun.sdk.address import Address
from statefun.sdk.errors import ConfigurationError

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class AdminChanges:
    """Changes a running application.

    Args:
        views: shows the application.
        control: the orders to it.
    """

    def __init__(self, views: AdminViews, control: Control) -> None:
        self._views = views
        self._checkpoint = views.definition.settings.checkpoint
        self._messages = PostedMessages(views.definition.functions)
        self._control = control
        self._lock = threading.Lock()

    def pause(self, part: Pausable, name: str = "", *, is_paused: bool) -> bool:
        """Pause or resume a part of the application; return whether that has changed anything."""
        with self._lock:
            has_changed = change_paused(self._checkpoint, part, name, is_paused=is_paused)
            self._control.look()
        return has_changed

    def restart(self) -> None:
        """Let the application end its run, and begin another one."""
        self._control.obey(Order.RESTART)

    def send(self, path: Sequence[str], content_type: str | None, body: bytes) -> str:
        """Send a message, as ``statefun send`` does; return the address.

        Raises:
            RefusedError: if no function accepts such a message.
        """
        address, typename, value = self._messages.checked(path, content_type, body)
        known = KnownValues.of(self._checkpoint, self._views.definition.functions)
        key = address_key(Address(known.stored_name(address.typename), address.id))
        try:
            put_message(self._checkpoint, key, typename, value)
        except ConfigurationError as error:  # the checkpoint is on other storage
            raise RefusedError(HTTPStatus.CONFLICT, error.message) from error
        return str(address)


def loggers() -> dict[str, Any]:
    """Return the levels of the loggers of this process that have one, by name; the root logger is ``root``."""
    root = logging.getLogger()
    levels = {"root": root.level}
    levels |= {
        name: logger.level
        for name, logger in list(root.manager.loggerDict.items())  # others may add some
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {name: {"level": logging.getLevelName(level)} for name, level in sorted(levels.items())}


def set_level(name: str, body: bytes) -> None:
    """Set the level of a logger of this process from ``{"level": "DEBUG"}``.

    Raises:
        RefusedError: if there is no such logger or level.
    """
    known = ["root", *logging.getLogger().manager.loggerDict]
    if name not in known:
        hint = nearest(name, known, "loggers")
        raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no logger {name}{hint}")
    try:
        level = json.loads(body)["level"]
    except (ValueError, KeyError, TypeError, RecursionError):
        level = None
    if level not in _LEVELS:
        text = f'the content must be {{"level": "..."}} with one of {", ".join(_LEVELS)}'
        raise RefusedError(HTTPStatus.BAD_REQUEST, text)
    logging.getLogger(None if name == "root" else name).setLevel(level)
