# SPDX-License-Identifier: Apache-2.0
"""Parses URLs of endpoints that name a Unix domain socket."""

from __future__ import annotations

import re

_SOCKET = re.compile(r"[a-z]+\+unix://(.+?\.sock)(?:/|$)")


def socket_file(url: str) -> str | None:
    """Return the file of the Unix domain socket in a URL; None if the URL does not name a socket.

    >>> socket_file("http+unix:///run/my.sockets/functions.sock/greeter")
    '/run/my.sockets/functions.sock'
    """
    match = _SOCKET.match(url)
    return None if match is None else match[1]
