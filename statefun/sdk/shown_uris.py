# SPDX-License-Identifier: Apache-2.0
"""Hides secrets of URIs in logs and errors: the login, and the values of the query."""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote, unquote_plus

_HIDDEN = "***"
_QUERY_PART = re.compile(r"([?&;])(?:([^=&;#]*=)[^&;#]*|[^&;#]+)")
_BLANK = "(?: |[+]|%20|(?i:%2b))"
"""A blank or a plus sign, however a URI has it: a plus sign in a query stands for a blank."""
_SHORTEST_SECRET = 6
"""The length from which secrets are hidden: a shorter secret, such as `none`, may be part of any text.

A shorter value of the query is hidden after its name and `=` only."""


def shown_uri(uri: str) -> str:
    """Return a URI without its login, and without the values of its query.

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
        query = _QUERY_PART.sub(rf"\1\2{_HIDDEN}", f"?{query.partition('#')[0]}")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}{query}"


def without_secrets(text: object, uri: str) -> str:
    """Return the text of a library's error without the secrets of a URI.

    >>> uri = "https://functions/greeter?code=8b1a9953"
    >>> without_secrets(f"400, url={uri!r}, code 8b1a9953", uri)
    "400, url='https://functions/greeter?code=***', code ***"
    """
    if "://" not in uri:
        return str(text)
    shown = str(text).replace(uri, shown_uri(uri))
    for secret in sorted(_secrets(uri), key=len, reverse=True):
        shown = re.sub(_spelled(secret), _HIDDEN, shown)
    for name, value in _short_values(uri):
        named = rf"(?<!\w)({_spelled(name)}=){_spelled(value)}(?!\w)"
        shown = re.sub(named, rf"\1{_HIDDEN}", shown)
    return shown


def _spelled(secret: str) -> str:
    """Return a regular expression for a decoded secret that any of its characters may be encoded in.

    Each library has its own rules about the characters that it encodes, and writes an encoded URI anew.
    """
    return "".join(
        _BLANK if character in " +" else f"(?:{_encoded(character)}|{re.escape(character)})"
        for character in secret
    )


def _encoded(character: str) -> str:
    return "".join(f"(?i:%{byte:02x})" for byte in character.encode(errors="replace"))


def _secrets(uri: str) -> set[str]:
    """Return the secret of the login and the query values of a URI, each as written and decoded.

    The login is a secret in the form of the header `Authorization`, too.
    """
    scheme, _, rest = uri.partition("://")
    before = rest.partition("?")[0]
    login = before.partition("/")[0].rpartition("@")[0]
    user, _, password = login.partition(":")
    # A token may stand for user and password. Elsewhere a user is a name: hdfs://hadoop@namenode.
    token = user if scheme.lower().startswith("http") else ""
    parts = [password or token, *(value for _, value in _query_values(uri))]
    secrets = {each for part in parts for each in (part, unquote_plus(part))}
    if password or token:
        both = f"{unquote(user)}:{unquote(password)}"
        # Clients differ in the code of characters beyond ASCII.
        basic = {b64encode(both.encode(code, "replace")).decode() for code in ("utf-8", "latin-1")}
        secrets |= basic | {each.rstrip("=") for each in basic}
    return {each for each in secrets if len(each) >= _SHORTEST_SECRET}


def _short_values(uri: str) -> set[tuple[str, str]]:
    """Return the names and values in the query of a URI whose values are too short to be hidden anywhere."""
    values = _query_values(uri)
    decoded = [(unquote_plus(name), unquote_plus(value)) for name, value in values]
    return {
        (name, value)
        for name, value in [*values, *decoded]
        if name and 0 < len(value) < _SHORTEST_SECRET
    }


def _query_values(uri: str) -> list[tuple[str, str]]:
    """Return the names and values in the query of a URI as written; a part without a name is a secret value itself."""
    query = uri.partition("://")[2].partition("?")[2]
    parts = (each if "=" in each else f"={each}" for each in re.split("[&;#]", query))
    return [(name, value) for name, _, value in (part.partition("=") for part in parts)]
