# SPDX-License-Identifier: Apache-2.0
"""Parses URLs of endpoints that name a Unix domain socket."""

from __future__ import annotations

import re

_SOCKET = re.compile(r"[a-z]+\+unix://(.+?\.sock)(?:/|$)")


def is_https(url: str) -> bool:
    """Return whether a URL has the scheme ``https``, in upper or lower case.

    >>> is_https("HTTPS://functions/"), is_https("http://functions/")
    (True, False)
    """
    return url.lower().startswith("https://")


def socket_file(url: str) -> str | None:
    """Return the file of the Unix domain socket in a URL; None if the URL does not name a socket.

    >>> socket_file("http+unix:///run/my.sockets/functions.sock/greeter")
    '/run/my.sockets/functions.sock'
    """
    match = _SOCKET.match(url)
    return None if match is None else match[1]
