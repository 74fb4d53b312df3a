# SPDX-License-Identifier: Apache-2.0
"""The URLs of endpoints."""

from __future__ import annotations

import re

_SOCKET = re.compile(r"[a-z]+\+unix://(.+?\.sock)(?:/|$)")


def socket_file(url: str) -> str | None:
    """Return the file of the Unix domain socket that a URL names, if it names one.

    >>> socket_file("http+unix:///run/my.sockets/functions.sock/greeter")
    '/run/my.sockets/functions.sock'
    """
    found = _SOCKET.match(url)
    return None if found is None else found[1]
