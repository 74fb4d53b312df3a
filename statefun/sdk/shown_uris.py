# SPDX-License-Identifier: Apache-2.0
"""What logs and errors may show of a URI: its login and the values of its query may be secrets."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_plus

_HIDDEN = "***"
_QUERY_VALUE = re.compile(r"([?&;][^=&;#]*)=[^&;#]*")
_SHORTEST_SECRET = 6
"""Characters. A shorter value, such as `https` or `none`, may be a part of any text."""


def shown_uri(uri: str) -> str:
    """Return a URI without its login, and with the names of its query alone.

    >>> shown_uri("https://ada:secret@functions:8080/greeter?code=KEY&slot=a")
    'https://functions:8080/greeter?code=***&slot=***'
    >>> shown_uri("/is it?/a=b")
    '/is it?/a=b'
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri
    before, mark, query = rest.partition("?")
    place, slash, path = before.partition("/")
    if mark:
        query = _QUERY_VALUE.sub(rf"\1={_HIDDEN}", f"?{query.partition('#')[0]}")
        query = query if "=" in query else f"?{_HIDDEN}"
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}{query}"


def without_secrets(text: object, uri: str) -> str:
    """Return the text of somebody else's error without what a URI in it may not show.

    >>> uri = "https://functions/greeter?code=8b1a9953"
    >>> without_secrets(f"400, url={uri!r}, code 8b1a9953", uri)
    "400, url='https://functions/greeter?code=***', code ***"
    """
    if "://" not in uri:
        return str(text)
    found = str(text).replace(uri, shown_uri(uri))
    for secret in sorted(_secrets(uri), key=len, reverse=True):
        found = found.replace(secret, _HIDDEN)
    return found


def _secrets(uri: str) -> set[str]:
    """Return what is hidden of a URI, as it is there and as it is meant."""
    _, _, rest = uri.partition("://")
    before, _, query = rest.partition("?")
    login = before.partition("/")[0].rpartition("@")[0]
    parts = [
        login.partition(":")[2],
        *(each.partition("=")[2] for each in re.split("[&;#]", query)),
    ]
    found = {
        each for part in parts for each in (part, unquote_plus(part), quote(unquote_plus(part)))
    }
    return {each for each in found if len(each) >= _SHORTEST_SECRET}
