# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from languages.servers import PYTHON, Server
from local_servers import free_port

from statefun import StatefulFunctions
from statefun.sdk.errors import PlatformError
from statefun.sdk.types import TypedValue
from statefun.testing import InProcessApplication

COMMANDS = [
    {"do": "add", "by": 2, "name": "first"},
    {"do": "send", "to": PYTHON.typename, "id": "Bob", "commands": [{"do": "recall", "name": "r"}]},
]


FORMS = {
    "v2": """
kind: io.statefun.endpoints.v2/http
spec:
  functions: {functions}
  urlPathTemplate: {url}
  transport: {{call: 500ms}}
""",
    "v2, async": """
kind: io.statefun.endpoints.v2/http
spec:
  functions: com.example.languages/*
  urlPathTemplate: {url}{{function.name}}
  maxNumBatchRequests: 10
  transport:
    type: io.statefun.transports.v1/async
    call: 5s
    connect: 5s
    pool_ttl: 15s
    pool_size: 4
    payload_max_bytes: 33554432
""",
    "v2, okhttp": """
kind: io.statefun.endpoints.v2/http
spec:
  functions: {functions}
  urlPathTemplate: {url}
  transport:
    type: io.statefun.transports.v1/okhttp
    timeouts: {{call: 5s, connect: 5s, read: 5s, write: 5s}}
""",
    "v1": """
kind: io.statefun.endpoints.v1/http
spec:
  functions: com.example.languages/*
  urlPathTemplate: {url}statefun
  maxNumBatchRequests: 500
  timeouts: {{call: 5s, connect: 5s, read: 5s, write: 5s}}
""",
    "3.0": """
version: "3.0"
module:
  meta:
    type: remote
  spec:
    endpoints:
      - endpoint:
          meta:
            kind: http
          spec:
            functions: com.example.languages/*
            urlPathTemplate: {url}
            maxNumBatchRequests: 100
            timeouts: {{call: 5s, connect: 5s, read: 5s, write: 5s}}
""",
}


def application(folder: Path, url: str, form: str = "v2") -> InProcessApplication:
    """Return an application with a module file alone."""
    endpoint = FORMS[form].format(functions=PYTHON.typename, url=url)
    (folder / "module.yaml").write_text(
        f"""{endpoint}---
kind: io.statefun.playground.v1/egress
spec:
  id: com.example.languages/out
  port: 1
  topics: [results]
"""
    )
    module = folder / "module.yaml"
    return InProcessApplication(functions=StatefulFunctions(), module=module)


@pytest.mark.parametrize("form", FORMS)
def test_remote_functions_are_called_from_tests(tmp_path: Path, form: str) -> None:
    """The server is a real one; the test needs nothing else. All forms of endpoints work."""
    with Server(PYTHON) as server:
        app = application(tmp_path, server.url, form)
        value = TypedValue("com.example.languages/commands", json.dumps(COMMANDS).encode())
        app.send(PYTHON.typename, "Ada", value)
        app.drain()
        records = [json.loads(each.value or b"") for each in app.egress("results")]
        assert [(each["name"], each.get("total")) for each in records] == [
            ("first", 2),
            ("r", None),
        ]


def test_a_message_without_effects_is_no_failure(tmp_path: Path) -> None:
    """The published SDK for Python answers with an empty reply then."""
    with Server(PYTHON) as server:
        app = application(tmp_path, server.url)
        app.send(PYTHON.typename, "Ada", TypedValue("com.example.languages/commands", b"[]"))
        app.drain()
        assert app.egress("results") == []


def test_an_endpoint_that_is_down_ends_a_test(tmp_path: Path) -> None:
    """The error has the reason."""
    app = application(tmp_path, f"http://127.0.0.1:{free_port()}/")
    app.send(PYTHON.typename, "Ada", TypedValue("com.example.languages/commands", b"[]"))
    with pytest.raises(PlatformError, match="cannot be reached: Connection refused"):
        app.drain()
