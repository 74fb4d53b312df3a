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


def application(folder: Path, url: str) -> InProcessApplication:
    """Return an application with a module file alone."""
    (folder / "module.yaml").write_text(
        f"""
kind: io.statefun.endpoints.v2/http
spec:
  functions: {PYTHON.typename}
  urlPathTemplate: {url}
  transport: {{call: 500ms}}
---
kind: io.statefun.playground.v1/egress
spec:
  id: com.example.languages/out
  port: 1
  topics: [results]
"""
    )
    module = folder / "module.yaml"
    return InProcessApplication(functions=StatefulFunctions(), module=module)


def test_remote_functions_are_called_from_tests(tmp_path: Path) -> None:
    """Their server is a real one; nothing else is needed."""
    with Server(PYTHON) as server:
        app = application(tmp_path, server.url)
        value = TypedValue("com.example.languages/commands", json.dumps(COMMANDS).encode())
        app.send(PYTHON.typename, "Ada", value)
        app.drain()
        records = [json.loads(each.value or b"") for each in app.egress("results")]
        assert [(each["name"], each.get("total")) for each in records] == [
            ("first", 2),
            ("r", None),
        ]


def test_an_endpoint_that_is_down_ends_a_test(tmp_path: Path) -> None:
    """The reason is in the error."""
    app = application(tmp_path, f"http://127.0.0.1:{free_port()}/")
    app.send(PYTHON.typename, "Ada", TypedValue("com.example.languages/commands", b"[]"))
    with pytest.raises(PlatformError, match="cannot be reached: Connection refused"):
        app.drain()
