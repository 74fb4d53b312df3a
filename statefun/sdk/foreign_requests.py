# SPDX-License-Identifier: Apache-2.0
"""Recognizes requests that a browser sends for a web page of another site, so that servers can refuse them.

A page may send requests to any server that its reader's browser reaches. The browser names the page's
origin in `Origin` and `Sec-Fetch-Site`. A page can also let its own host name resolve to this machine
(DNS rebinding): then the browser regards page and server as one site, and `Host` has the page's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from ipaddress import ip_address
from socket import getfqdn, gethostname
from urllib.parse import urlsplit

_LOCAL_DOMAINS = (".localhost", ".internal", ".local", ".svc")
"""The ends of names that the public DNS never has, such as ``.cluster.local``."""


def foreign_header(
    get: Callable[[str], str | None],
    *,
    only_this_machine: bool,
    has_name: Callable[[str], bool] | None = None,
) -> str | None:
    """Return the header that shows that a web page of another site has sent the request.

    Args:
        get: returns the value of a header by the header's name, in upper or lower case; None if the
            request has no such header.
        only_this_machine: whether all clients of the server are on this machine, so that they name
            the server `localhost` or by an IP address.
        has_name: returns whether the server has a name, in lower case, besides `localhost` and IP addresses;
            None: no other name if ``only_this_machine`` is set, else any name.

    Returns:
        The header's name and value, for error texts; None if no page of another site has sent the
        request.

    >>> foreign_header({"Host": "attacker.example"}.get, only_this_machine=True)
    'Host: attacker.example'
    >>> foreign_header({"Host": "127.0.0.1:8000"}.get, only_this_machine=True)
    """
    host, origin, site = (get(name) for name in ("Host", "Origin", "Sec-Fetch-Site"))
    host_name = _name_in(f"//{host or ''}")
    is_usual = host_name == "localhost" or _is_number(host_name)
    if not (is_usual or (has_name(host_name) if has_name else not only_this_machine)):
        return f"Host: {host or ''}"
    if origin is not None:
        origin_name = _name_in(origin)
        is_local = only_this_machine and is_this_machine(origin_name)
        if not origin_name or (origin_name != host_name and not is_local):
            return f"Origin: {origin}"
    if site in {"cross-site", "same-site"}:
        return f"Sec-Fetch-Site: {site}"
    return None


def is_local_name(host: str) -> bool:
    """Return whether a name, in lower case, belongs to a local network: no web site of others can have it.

    >>> [is_local_name(name) for name in ("statefun", "a.svc.cluster.local", "localhost.a.example")]
    [True, True, False]
    """
    name = host.removesuffix(".")
    return "." not in name or name.endswith(_LOCAL_DOMAINS) or name in _own_names()


@cache
def _own_names() -> frozenset[str]:
    return frozenset({gethostname().lower(), getfqdn().lower()})


def is_this_machine(host: str) -> bool:
    """Return whether a server that listens at a host has clients on this machine only.

    >>> [is_this_machine(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "a.example")]
    [True, True, True, False, False]
    """
    return host == "localhost" or (_is_number(host) and ip_address(host).is_loopback)


def _name_in(url: str) -> str:
    """Return the name of the host in a URL; empty if the URL has no host."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # such as an unclosed bracket
        return ""


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
