# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ParamValidationError
from local_servers import free_port

from statefun.kinesis.aws_client import connect, trouble_of
from statefun.kinesis.connection import Connection, Credentials


def client(port: int) -> Any:
    """Return a client of a server at a port."""
    url = f"http://127.0.0.1:{port}"
    credentials = Credentials("tests", "no secret")
    return connect(Connection("ingress a/b", "eu-west-1", url, credentials))


def test_a_request_that_cannot_be_sent_is_not_repeated() -> None:
    """It would be wrong each time; the text has one line."""
    with pytest.raises(ParamValidationError) as caught:
        client(free_port()).list_shards(StreamName="")

    trouble = trouble_of(caught.value)

    assert not trouble.is_temporary
    assert trouble.text.startswith("Parameter validation failed: Invalid length for parameter")


def test_a_request_that_reaches_no_server_is_repeated() -> None:
    """The server may be there later."""
    with pytest.raises(Exception, match="Could not connect") as caught:
        client(free_port()).list_shards(StreamName="users")

    assert trouble_of(caught.value).is_temporary
