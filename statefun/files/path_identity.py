# SPDX-License-Identifier: Apache-2.0
"""Removes options and login from paths and URIs: these may be secret, and may change between runs."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"(?<=://)[^/?#]*@")


def identity_of(path: str) -> str:
    """Return a path or URI without options and login, as it is shown in error texts and used as topic.

    >>> identity_of("s3://me@data/in/*.csv?region=eu-west-1&access_key=K"), identity_of("/data/is it?")
    ('s3://data/in/*.csv', '/data/is it?')
    """
    return without_login(path).partition("?")[0] if "://" in path else path


def without_login(path: str) -> str:
    """Return a path or URI without the login.

    >>> without_login("hdfs://me@node:8020/data/a?b"), without_login("/data/me@home")
    ('hdfs://node:8020/data/a?b', '/data/me@home')
    """
    return _LOGIN.sub("", path, count=1) if "://" in path else path
