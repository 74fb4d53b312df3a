# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from statefun.kinesis.connection import Connection, Credentials


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        (None, "endpoint=None"),
        ("https://ada:s3cret@kinesis:4567/?key=s3cret", "endpoint='https://kinesis:4567/?key=***'"),
    ],
)
def test_no_secret_of_a_connection_is_shown(endpoint: str | None, shown: str) -> None:
    """Neither credentials, nor the login and query of the server's URL."""
    credentials = Credentials("s3cret", "s3cret")
    connection = Connection("ingress a/b", "here", endpoint, credentials, {"proxy": "s3cret"})

    assert shown in repr(connection)
    assert "s3cret" not in repr(connection)
